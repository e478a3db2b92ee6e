// Threads, sessions and comparisons for the tests of whole trainings.
#include "tests/tools/session_runner.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "engine/train/weights.h"
#include "tools/train_session.h"
#include "tools/worker_threads.h"

namespace session_runner {
namespace {

class Recorder : public engine::TrainObserver {
 public:
  Recorder(RankResult& result, std::function<void()> after_step) : result_(result), after_step_(std::move(after_step)) {}
  void on_step(const engine::TrainProgress&) override {
    if (after_step_) after_step_();
  }
  void on_report(const engine::StepReport& r) override {
    result_.losses.push_back(r.loss);
    result_.reports.push_back(r);
    result_.reports.back().ranks = {};
  }
  void on_eval(const engine::EvalReport& r) override {
    result_.last_accuracy = r.accuracy();
    result_.last_eval = r;
  }
  void on_desync(const engine::TrainProgress&, const engine::DesyncReport& r) override { result_.desyncs.push_back(r); }

 private:
  RankResult& result_;
  std::function<void()> after_step_;
};

}  // namespace

io::RunConfig make_config(const std::map<std::string, std::string>& options) {
  io::ConfigValues values;
  std::map<std::string, std::string> all{{"model", "mlp"},         {"dataset", "synthetic"}, {"synthetic-shape", "6x6x1"},
                                         {"synthetic-size", "60"}, {"batch-size", "12"},     {"log-every", "1"},
                                         {"eval-every", "0"},      {"threads", "1"},         {"progress", "never"}};
  if (options.contains("batch-size-per-device")) all.erase("batch-size");
  for (const auto& [name, value] : options) all[name] = value;
  for (const auto& [name, value] : all) values[name] = {value, "--" + name};
  io::apply_defaults(values);
  return io::resolve_run_config(values);
}

namespace {

double value(const io::NamedArray& array, std::size_t i) {
  if (array.type == io::ArrayType::kF64) {
    double v;
    std::memcpy(&v, array.data.data() + i * sizeof v, sizeof v);
    return v;
  }
  float v;
  std::memcpy(&v, array.data.data() + i * sizeof v, sizeof v);
  return static_cast<double>(v);
}

}  // namespace

std::vector<RankResult> train(int world_size, const std::map<std::string, std::string>& options, const AfterStep& after_step) {
  const io::RunConfig config = make_config(options);
  std::vector<RankResult> results(static_cast<std::size_t>(world_size));
  tools::run_inproc_ranks(world_size, 20'000, [&](std::unique_ptr<backends::Group> group) {
    RankResult& result = results[static_cast<std::size_t>(group->rank())];
    const std::atomic<int> never{0};
    tools::TrainSession session(config, *group);
    static_cast<void>(session.start_state());
    std::function<void()> meddle;
    if (after_step) meddle = [&after_step, rank = group->rank(), &session] { after_step(rank, session.state()); };
    session.add_observer(std::make_unique<Recorder>(result, meddle));
    result.coverage = session.run(never).coverage;
    result.state = engine::export_state(session.state().model, {});
    group->leave();
    return 0;
  });
  return results;
}

double distance(const RankResult& a, const RankResult& b, io::Section section) {
  double largest = 0, apart = 0;
  for (std::size_t k = 0; k < a.state.size(); ++k) {
    if (a.state[k].section != section || a.state[k].type == io::ArrayType::kI64) continue;
    const std::size_t count = a.state[k].data.size() / io::size_of(a.state[k].type);
    for (std::size_t i = 0; i < count; ++i) {
      const double x = value(a.state[k], i), y = value(b.state.at(k), i);
      if (std::isnan(x) || std::isnan(y)) return INFINITY;
      largest = std::max(largest, std::abs(x));
      apart = std::max(apart, std::abs(x - y));
    }
  }
  return apart / largest;
}

bool same_bits(const RankResult& a, const RankResult& b, io::Section section) {
  return std::equal(a.state.begin(), a.state.end(), b.state.begin(), b.state.end(),
                    [&](const auto& x, const auto& y) { return x.section != section || (x.name == y.name && x.data == y.data); });
}

}  // namespace session_runner
