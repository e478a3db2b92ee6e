// Parses one event per line.
#include "tools/html/run_history.h"

#include <cmath>
#include <limits>

#include "io/base/files/io_error.h"
#include "io/base/files/open_file.h"
#include "io/base/formats/nesting.h"
#include "io/base/text/text_parts.h"
#include "tools/folder/output_paths.h"
#include "tools/report/output/json_file.h"

namespace tools {
namespace {

constexpr std::size_t kMaxLineBytes = std::size_t{4} << 20;
constexpr std::uint64_t kMaxMetricsBytes = std::uint64_t{1} << 30;
constexpr const char* kPhaseKeys[5] = {"data_s", "forward_s", "backward_s", "communication_s",
                                       "update_s"};

double number(const Json& event, const char* key) {
  const auto found = event.find(key);
  return found != event.end() && found->is_number() ? found->get<double>()
                                                    : std::numeric_limits<double>::quiet_NaN();
}

std::string text(const Json& event, const char* key) {
  const auto found = event.find(key);
  return found != event.end() && found->is_string() ? found->get<std::string>() : "";
}

std::string listed(const Json& event, const char* key, const char* what) {
  const auto found = event.find(key);
  if (found == event.end() || !found->is_array() || found->empty()) return "";
  std::vector<std::string> names;
  for (const Json& name : *found)
    names.push_back(name.is_string() ? name.get<std::string>() : name.dump());
  return "; " + base::join_text(names) + what;
}

class Reader {
 public:
  explicit Reader(RunHistory& history) : h_(history) {}

  void take(const Json& event) {
    const std::string kind = text(event, "event");
    const double step = number(event, "step");
    if (!std::isfinite(step)) return;
    if (kind == "start") return start(step, number(event, "time"));
    h_.last_step = std::max(h_.last_step, step);
    if (kind == "step") {
      RunHistory::Step s{.step = step,
                         .time = number(event, "time"),
                         .loss = number(event, "loss"),
                         .lr = number(event, "lr"),
                         .samples_per_s = number(event, "samples_per_s"),
                         .accuracy = number(event, "accuracy"),
                         .phases = {},
                         .slowest_rank = {},
                         .slowest_ratio = number(event, "slowest_ratio")};
      for (std::size_t i = 0; i < 5; ++i) s.phases[i] = number(event, kPhaseKeys[i]);
      if (const double rank = number(event, "slowest_rank"); std::isfinite(rank))
        s.slowest_rank = static_cast<int>(rank);
      h_.steps.push_back(s);
    } else if (kind == "eval") {
      const auto best = event.find("best");
      h_.evaluations.push_back(
          {.step = step,
           .loss = number(event, "loss"),
           .accuracy = number(event, "accuracy"),
           .top5 = number(event, "top5"),
           .perplexity = number(event, "perplexity"),
           .mse = number(event, "mse"),
           .mae = number(event, "mae"),
           .r2 = number(event, "r2"),
           .weights = text(event, "weights"),
           .split = text(event, "split"),
           .best = best != event.end() && best->is_boolean() && best->get<bool>()});
    } else if (kind == "averaging") {
      h_.averagings.push_back({step, number(event, "spread"), number(event, "bytes_sent")});
    } else if (kind == "gpu") {
      h_.gpus.push_back({step, number(event, "utilization"), event.value("device", Json()).dump()});
    } else if (kind == "end") {
      h_.seconds += number(event, "seconds");
      if (const double code = number(event, "exit"); std::isfinite(code))
        h_.exit = static_cast<int>(code);
    } else if (const std::string what = described(kind, event); !what.empty()) {
      h_.events.push_back({step, what});
    }
  }

 private:
  // Returns the text of an event that is a single moment of the run; "" for others.
  static std::string described(const std::string& kind, const Json& event) {
    if (kind == "membership")
      return short_text(number(event, "ranks")) + " ranks" + listed(event, "left", " left") +
             listed(event, "joined", " joined") + "; on after " +
             short_text(number(event, "seconds")) + " s";
    if (kind == "shares")
      return "the ranks' shares of a step: " + event.value("samples", Json()).dump();
    if (kind == "desync")
      return "replicas differ from step " + short_text(number(event, "first_bad")) + " on (" +
             text(event, "action") + ")";
    if (kind == "nonfinite")
      return text(event, "what") + " is not finite (" + text(event, "action") +
             "), last good at step " + short_text(number(event, "last_good"));
    return "";
  }
  static std::string short_text(double value) { return base::number_text("%.4g", value); }

  template <class List>
  static void forget_behind(List& list, double step) {
    std::erase_if(list, [&](const auto& entry) { return entry.step > step; });
  }

  void start(double step, double) {
    if (seen_start_) {
      forget_behind(h_.steps, step);
      forget_behind(h_.evaluations, step);
      forget_behind(h_.averagings, step);
      forget_behind(h_.gpus, step);
      forget_behind(h_.events, step);
      h_.events.push_back({step, "resumed from step " + short_text(step)});
    }
    seen_start_ = true;
    h_.last_step = step;
    h_.exit.reset();
  }

  RunHistory& h_;
  bool seen_start_ = false;
};

}  // namespace

RunHistory read_run_history(const std::string& folder) {
  if (const std::string unstarted = unstarted_run_text(folder); !unstarted.empty())
    throw io::MissingFileError(unstarted);
  RunHistory history;
  history.folder = folder;
  history.record = read_run_record(folder);
  Reader reader(history);
  // A line may be torn, if a writer was killed or a disk was full.
  const auto take = [&](const std::string& line) {
    const bool readable = line.size() < kMaxLineBytes && io::json_nests_within_limit(line);
    const Json event = readable ? Json::parse(line, nullptr, false) : Json();
    if (event.is_object())
      reader.take(event);
    else if (!line.empty())
      ++history.unreadable_lines;
  };
  try {
    io::for_each_run_line(folder + "/metrics.jsonl", kMaxLineBytes, kMaxMetricsBytes, take);
  } catch (const io::MissingFileError&) {
    // The run has not started to train.
  }
  return history;
}

}  // namespace tools
