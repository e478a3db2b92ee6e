// `engine bench`: which benchmark; and `engine bench step`: how long a whole training step takes, without loading data from disk.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

#include "models/model_catalog.h"
#include "tools/command.h"
#include "tools/command_line.h"
#include "tools/exit_codes.h"
#include "tools/run_group.h"
#include "tools/stop_signals.h"
#include "tools/train_session.h"

namespace tools {
namespace {

struct StepBench {
  std::string model = "convnet", format = "text", backend = "auto", sync = "grad", dtype = "f32";
  int batch = 100, threads = 1, ranks = 1, warmup = 3;
  double seconds = 5;
};

io::RunConfig bench_config(const StepBench& bench) {
  const models::ModelOptions wanted = models::default_options(bench.model);
  std::string shape;
  for (int d = 0; d < wanted.sample_shape.rank(); ++d) shape += (d ? "x" : "") + std::to_string(wanted.sample_shape[d]);
  io::ConfigValues values;
  const auto set = [&](const char* name, const std::string& value) { values[name] = {value, "--" + std::string(name)}; };
  set("model", bench.model);
  set("dataset", "synthetic");
  set("synthetic-shape", shape);
  set("synthetic-size", std::to_string(bench.batch * bench.ranks));
  set("synthetic-classes", std::to_string(wanted.classes));
  set("batch-size-per-device", std::to_string(bench.batch));
  set("threads", std::to_string(bench.threads));
  if (bench.ranks > 1) set("spawn", std::to_string(bench.ranks));
  set("backend", bench.backend);
  set("sync", bench.sync);
  set("dtype", bench.dtype);
  set("shuffle", "false");
  set("workers", "0");
  set("lr", "0.01");
  set("momentum", "0.9");
  set("eval-every", "0");
  io::apply_defaults(values);
  return io::resolve_run_config(values);
}

int bench_rank(const StepBench& bench, const io::RunConfig& config, backends::Group& group) {
  using Clock = std::chrono::steady_clock;
  const auto seconds_since = [](Clock::time_point t) { return std::chrono::duration<double>(Clock::now() - t).count(); };
  TrainSession session(config, group);
  static_cast<void>(session.start_state());
  static const std::atomic<int> never{0};
  engine::Trainer trainer = session.make_trainer(never);
  const auto control = group.make_communicator();
  for (int i = 0; i < bench.warmup; ++i) trainer.step();
  std::vector<double> times;
  control->barrier();
  const auto start = Clock::now();
  while (true) {
    // Rank 0's clock decides for all, a few steps at a time, so that deciding costs nothing that shows.
    double more = seconds_since(start) < bench.seconds || times.size() < 3 ? 1 : 0;
    if (group.world_size() > 1) control->broadcast(&more, sizeof more, 0);
    if (more == 0) break;
    for (int i = 0; i < 4; ++i) {
      const auto begin = Clock::now();
      trainer.step();
      times.push_back(seconds_since(begin));
    }
  }
  if (group.rank() != 0) return kExitOk;
  std::sort(times.begin(), times.end());
  const double median = times[times.size() / 2];
  const double rate = static_cast<double>(session.global_batch()) / median;
  if (bench.format == "json") {
    std::printf(
        "{\"schema\":1,\"model\":\"%s\",\"batch_per_rank\":%d,\"ranks\":%d,\"threads\":%d,\"backend\":\"%s\",\"step_ms\":%.4f,"
        "\"step_ms_min\":%.4f,\"step_ms_p99\":%.4f,\"samples_per_s\":%.2f}\n",
        bench.model.c_str(), bench.batch, bench.ranks, bench.threads, group.backend().c_str(), median * 1e3, times.front() * 1e3,
        times[times.size() * 99 / 100] * 1e3, rate);
  } else {
    std::printf("%s\n%zu steps: median %.3f ms, min %.3f ms, p99 %.3f ms; %.0f samples/s\n", session.start_line().c_str(),
                times.size(), median * 1e3, times.front() * 1e3, times[times.size() * 99 / 100] * 1e3, rate);
  }
  return kExitOk;
}

}  // namespace

int bench_command(const Arguments& arguments) {
  if (!arguments.empty() && arguments.front() == "comm") return bench_comm_command({arguments.begin() + 1, arguments.end()});
  CLI::App app(
      "Measures whole training steps on synthetic data in memory: engine bench step. Collectives: engine bench comm --help.",
      "engine bench");
  std::string what;
  StepBench bench;
  app.add_option("WHAT", what, "what to measure")->required()->check(CLI::IsMember({"step"}))->type_name("step|comm");
  app.add_option("--model", bench.model, "model name or TOML file")->capture_default_str();
  app.add_option("--batch", bench.batch, "samples a step on each rank")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--threads", bench.threads, "threads of each rank")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--ranks", bench.ranks, "ranks on this machine")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--backend", bench.backend, "as engine train")->capture_default_str();
  app.add_option("--sync", bench.sync, "as engine train")->capture_default_str();
  app.add_option("--dtype", bench.dtype, "f32 or f64")->capture_default_str();
  app.add_option("--seconds", bench.seconds, "how long to measure")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--warmup", bench.warmup, "steps before measuring")->check(CLI::NonNegativeNumber)->capture_default_str();
  app.add_option("--format", bench.format, "text or json")->check(CLI::IsMember({"text", "json"}))->capture_default_str();
  if (!parse(app, arguments)) return kExitOk;
  const io::RunConfig config = bench_config(bench);
  return run_group(config, [&](backends::Group& group) { return bench_rank(bench, config, group); });
}

}  // namespace tools
