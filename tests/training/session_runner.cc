// Threads, sessions and comparisons for the tests of whole trainings.
#include "tests/training/session_runner.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "engine/train/saving/weights.h"
#include "tests/support/hooked_group.h"
#include "tests/support/time_limits.h"
#include "tools/launch/workers/worker_threads.h"
#include "tools/run/session/train_session.h"

namespace session_runner {
namespace {

// Ranks are threads here, each with its device: as in a process of the program that has several.
[[maybe_unused]] const int kLoading = setenv("CUDA_MODULE_LOADING", "EAGER", /*overwrite=*/0);

}  // namespace

Options with(Options base, const Options& more) {
  for (const auto& [name, value] : more) {
    base[name] = value;
    if (value.empty()) base.erase(name);
  }
  return base;
}
namespace {

class Recorder : public engine::TrainObserver {
 public:
  Recorder(RankResult& result, std::function<void()> after_step)
      : result_(result), after_step_(std::move(after_step)) {}
  void on_step(const engine::TrainProgress&) override {
    if (after_step_) after_step_();
  }
  void on_report(const engine::StepReport& r) override {
    result_.losses.push_back(r.loss);
    if (r.spread) result_.spreads.push_back(*r.spread);
    result_.reports.push_back(r);
    result_.reports.back().ranks = {};
  }
  void on_eval(const engine::EvalReport& r) override {
    result_.last_accuracy = r.accuracy();
    result_.last_eval = r;
    result_.evaluated.push_back(r.progress.global_step);
    result_.evals.push_back(r);
  }
  void on_shares(const engine::TrainProgress&, const engine::ShareReport& r) override {
    result_.shares.push_back(r);
  }
  void on_desync(const engine::TrainProgress&, const engine::DesyncReport& r) override {
    result_.desyncs.push_back(r);
  }
  void on_nonfinite(const engine::TrainProgress&, const engine::NonFiniteReport& r) override {
    result_.not_finite.push_back(r);
  }
  void on_save(const engine::TrainProgress&, const std::string& path) override {
    result_.saved.push_back(path);
  }

 private:
  RankResult& result_;
  std::function<void()> after_step_;
};

// A group whose members seem to live elsewhere.
class OnOtherHosts final : public test_support::HookedGroup {
 public:
  OnOtherHosts(std::unique_ptr<backends::Group> group, const std::vector<std::string>& hosts)
      : HookedGroup(std::move(group)), peers_(HookedGroup::peers()) {
    for (std::size_t r = 0; r < hosts.size(); ++r) peers_.at(r).host_id = hosts[r];
  }
  const std::vector<backends::PeerInfo>& peers() const override { return peers_; }

 private:
  std::vector<backends::PeerInfo> peers_;
};

}  // namespace

tools::RunConfig make_config(const Options& options) {
  tools::ConfigValues values;
  Options all =
      "model=mlp dataset=synthetic synthetic-shape=6x6x1 synthetic-size=60 batch-size=12 "
      "log-every=1 eval-every=0 threads=1 progress=never device=cpu";
  if (options.contains("batch-size-per-device")) all.erase("batch-size");
  if (options.contains("gpu-devices")) all.erase("device");
  if (options.contains("dataset") && options.at("dataset") != "synthetic")
    for (const char* option : {"synthetic-shape", "synthetic-size"}) all.erase(option);
  for (const auto& [name, value] : options) all[name] = value;
  for (const auto& [name, value] : all) values[name] = {value, "--" + name};
  tools::apply_defaults(values);
  return tools::resolve_run_config(values);
}

namespace {

double value(const io::NamedArray& array, std::size_t i) {
  if (array.type == base::DType::kF64) {
    double v;
    std::memcpy(&v, array.data.data() + i * sizeof v, sizeof v);
    return v;
  }
  float v;
  std::memcpy(&v, array.data.data() + i * sizeof v, sizeof v);
  return static_cast<double>(v);
}

std::vector<RankResult> train_anywhere(int world_size, const Options& options,
                                       const AfterStep& after_step,
                                       const std::vector<std::string>& hosts) {
  const tools::RunConfig config = make_config(options);
  std::vector<RankResult> results(static_cast<std::size_t>(world_size));
  tools::run_inproc_ranks(
      world_size, test_support::deadline_ms(20'000), [&](std::unique_ptr<backends::Group> inproc) {
        const std::unique_ptr<backends::Group> group =
            std::make_unique<OnOtherHosts>(std::move(inproc), hosts);
        RankResult& result = results[static_cast<std::size_t>(group->rank())];
        const std::atomic<int> never{0};
        tools::TrainSession session(config, *group);
        static_cast<void>(session.start_state());
        std::function<void()> meddle;
        if (after_step)
          meddle = [&after_step, rank = group->rank(), &session] {
            after_step(rank, session.state());
          };
        session.add_observer(std::make_unique<Recorder>(result, meddle));
        result.capture = session.facts().capture;
        result.samples_on_device = session.facts().data.on_device;
        if (const auto& plan = session.facts().averaging.plan)
          result.plan = engine::describe(*plan);
        result.memory = session.facts().memory;
        const engine::TrainResult end = session.run(never);
        result.coverage = end.coverage;
        result.end = end.progress;
        result.stopped_early = end.stopped_early;
        result.averagings = end.averagings;
        result.bytes_sent = end.bytes_sent;
        const engine::HostView view(session.state().home, engine::Access::kRead);
        result.state = engine::export_state(session.state().model, {});
        if (session.state().shares == nullptr) result.whole = whole_state(session.state());
        group->leave();
        return 0;
      });
  return results;
}

}  // namespace

std::vector<RankResult> train(int world_size, const Options& options, const AfterStep& after_step) {
  return train_anywhere(world_size, options, after_step, {});
}

std::vector<RankResult> train_on_hosts(const std::vector<std::string>& hosts,
                                       const Options& options) {
  return train_anywhere(static_cast<int>(hosts.size()), options, {}, hosts);
}

double distance(const RankResult& a, const RankResult& b, io::Section section) {
  double largest = 0, apart = 0;
  for (std::size_t k = 0; k < a.state.size(); ++k) {
    if (a.state[k].section != section || a.state[k].type == base::DType::kI64) continue;
    const std::size_t count = a.state[k].data.size() / base::size_of(a.state[k].type);
    for (std::size_t i = 0; i < count; ++i) {
      const double x = value(a.state[k], i), y = value(b.state.at(k), i);
      if (std::isnan(x) || std::isnan(y)) return INFINITY;
      largest = std::max(largest, std::abs(x));
      apart = std::max(apart, std::abs(x - y));
    }
  }
  return apart / largest;
}

double loss_distance(const RankResult& a, const RankResult& b) {
  if (a.losses.size() != b.losses.size() || a.losses.empty()) return INFINITY;
  double largest = 0;
  for (std::size_t i = 0; i < a.losses.size(); ++i) {
    if (!std::isfinite(a.losses[i]) || !std::isfinite(b.losses[i])) return INFINITY;
    largest = std::max(largest, std::abs(a.losses[i] - b.losses[i]) / std::abs(a.losses[i]));
  }
  return largest;
}

bool same_bits(const RankResult& a, const RankResult& b, io::Section section) {
  return std::equal(a.state.begin(), a.state.end(), b.state.begin(), b.state.end(),
                    [&](const auto& x, const auto& y) {
                      return x.section != section || (x.name == y.name && x.data == y.data);
                    });
}

io::Checkpoint whole_state(const engine::TrainState& state) {
  engine::StateCopy copy;
  copy.begin({});
  engine::capture_own(state, 1, copy);
  return copy.take();
}

io::Checkpoint training_in(io::Checkpoint checkpoint) {
  checkpoint.world_size = 1;
  checkpoint.history.clear();
  std::erase_if(checkpoint.counters, [](const auto& counter) {
    return counter.first.starts_with("averaging.") &&
           (counter.first.ends_with("averagings") || counter.first.ends_with("bytes_sent"));
  });
  return checkpoint;
}

std::string difference(const io::Checkpoint& one, const io::Checkpoint& other) {
  const io::Checkpoint a = training_in(one), b = training_in(other);
  if (io::checkpoint_bytes(a) == io::checkpoint_bytes(b)) return "";
  const auto progress = [](const io::Checkpoint& c) {
    std::string text = "step " + std::to_string(c.global_step) + ", epoch " +
                       std::to_string(c.epoch) + ", step in epoch " +
                       std::to_string(c.step_in_epoch) + ", samples " +
                       std::to_string(c.samples_seen) + ", seed " + std::to_string(c.seed);
    for (const auto& [name, value] : c.counters) text += ", " + name + " " + std::to_string(value);
    return text;
  };
  if (progress(a) != progress(b)) return progress(a) + " | " + progress(b);
  for (std::size_t i = 0; i < std::min(a.arrays.size(), b.arrays.size()); ++i) {
    const io::NamedArray &x = a.arrays[i], &y = b.arrays[i];
    if (x.section != y.section || x.name != y.name || x.type != y.type || x.shape != y.shape ||
        x.data != y.data)
      return to_string(x.section) + " " + x.name + " | " + to_string(y.section) + " " + y.name;
  }
  return "the number of arrays, or texts";
}

}  // namespace session_runner
