// Formats lines of progress, and a table of the ranks.
#include "tools/commands/top/top_view.h"

#include <algorithm>
#include <cstdio>

#include "backends/store/protocol/stall_detector.h"
#include "io/base/text/escape_text.h"
#include "tools/report/text/progress_line.h"

namespace tools {
namespace {

constexpr double kOld = 5;                // age in seconds at which the view shows it
constexpr std::int64_t kLongWait = 1000;  // milliseconds

std::string four_places(double value) {
  char text[64];
  std::snprintf(text, sizeof text, "%.4f", value);
  return text;
}

std::string progress_text(const RunStatus& s) {
  std::string text = "step " + with_commas(s.progress.step) + " of " +
                     with_commas(s.progress.steps) + ", epoch " + with_commas(s.progress.epoch) +
                     " of " + with_commas(s.progress.epochs);
  if (s.loss) text += " | loss " + four_places(*s.loss);
  if (s.accuracy) text += (s.loss ? ", accuracy " : " | accuracy ") + four_places(*s.accuracy);
  if (!s.rate.empty()) text += " | " + base::escape_text(s.rate);
  if (s.seconds_left && !s.end) text += " | " + clock_text(*s.seconds_left) + " left";
  return text;
}

// Returns the text with commas in its counts: words of digits alone, also in parentheses or with
// punctuation at the end. Numbers in addresses and names stay.
std::string grouped_counts(const std::string& text) {
  constexpr std::size_t kMaxDigits = 18;
  constexpr const char *kEnds = " ()", *kPunctuation = ":,;";
  std::string grouped;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find_first_of(kEnds, at), text.size());
    const std::string word = text.substr(at, end - at);
    const std::string number = word.substr(0, word.find_last_not_of(kPunctuation) + 1);
    const bool is_count = !number.empty() && number.size() <= kMaxDigits && number[0] != '0' &&
                          number.find_first_not_of("0123456789") == std::string::npos;
    grouped += is_count ? with_commas(std::stoll(number)) + word.substr(number.size()) : word;
    if (end < text.size()) grouped += text[end];
    at = end + 1;
  }
  return grouped;
}

std::string doing(const backends::RankStatus& rank) {
  if (!rank.connected) return "gone";
  std::string text = grouped_counts(base::escape_text(rank.activity));
  if (rank.progress.waiting_ms < kLongWait) return text.empty() ? "starting" : text;
  text += (text.empty() ? "" : "; ") + std::string("waits ") +
          backends::stalled_time_text(rank.progress.waiting_ms);
  if (!rank.progress.call.empty())
    text += " in " + grouped_counts(base::escape_text(rank.progress.call));
  if (!rank.progress.links.empty()) text += ": " + base::escape_text(rank.progress.links);
  return text;
}

// Shortens a line, because longer ones would wrap, and the lines above would scroll away.
std::string cut(const std::string& line, int columns) {
  const auto most = static_cast<std::size_t>(std::max(columns, 20));
  return line.size() <= most ? line : line.substr(0, most - 3) + "...";
}

std::string table(const RunStatus& status, int rows, int columns) {
  std::vector<RunStatus::Rank> ranks = status.ranks;
  if (ranks.size() > static_cast<std::size_t>(rows))
    std::ranges::stable_sort(ranks, [](const RunStatus::Rank& a, const RunStatus::Rank& b) {
      return std::pair(!a.now.connected, a.now.progress.waiting_ms) >
             std::pair(!b.now.connected, b.now.progress.waiting_ms);
    });
  std::size_t host_width = 4;
  for (const RunStatus::Rank& rank : ranks)
    host_width = std::max(host_width, base::escape_text(rank.host).size());
  host_width = std::min<std::size_t>(host_width, 30);
  const auto row = [&](const std::string& rank, const std::string& host, const std::string& pid,
                       const std::string& what) {
    char head[128];
    std::snprintf(head, sizeof head, "%5s  %-*.*s  %-7s  ", rank.c_str(),
                  static_cast<int>(host_width), static_cast<int>(host_width), host.c_str(),
                  pid.c_str());
    return cut(head + what, columns) + "\n";
  };
  std::string text = row("rank", "host", "pid", "doing");
  std::size_t shown = 0;
  for (const RunStatus::Rank& rank : ranks) {
    if (shown == static_cast<std::size_t>(rows)) break;
    ++shown;
    text += row(std::to_string(rank.now.rank), base::escape_text(rank.host),
                std::to_string(rank.pid), doing(rank.now));
  }
  if (const std::size_t left = ranks.size() - shown; left > 0) {
    const bool waited = std::ranges::any_of(ranks, [](const RunStatus::Rank& rank) {
      return rank.now.progress.waiting_ms >= kLongWait;
    });
    text += std::to_string(left) + " more " + (left == 1 ? "rank" : "ranks") +
            (!waited     ? ""
             : left == 1 ? ", which waits less"
                         : ", which wait less") +
            "\n";
  }
  return text;
}

}  // namespace

std::string top_text(const RunStatus& s, double age, int rows, int columns) {
  const bool running = !s.end;
  std::string text =
      cut("run " + base::escape_text(s.run) + ": " + base::escape_text(s.model) + " on " +
              base::escape_text(s.dataset) + ", " + base::escape_text(state_text(s)),
          columns) +
      "\n" + cut(progress_text(s), columns) + "\n";
  if (!s.evaluation.empty())
    text += cut("test " + grouped_counts(base::escape_text(s.evaluation)), columns) + "\n";
  if (s.bytes_sent > 0) text += "bytes sent by each rank: " + with_commas(s.bytes_sent) + "\n";
  if (!s.newest_checkpoint.empty())
    text += "newest checkpoint: " + base::escape_text(s.newest_checkpoint) + "\n";
  if (running && age > kOld)
    text += cut("no news for " + clock_text(age) + ": is process " + std::to_string(s.process.pid) +
                    " on " + base::escape_text(s.process.host) + " still running?",
                columns) +
            "\n";
  if (!s.cause.empty()) text += "cause: " + base::escape_text(s.cause) + "\n";
  return running ? text + "\n" + table(s, rows, columns) : text;
}

}  // namespace tools
