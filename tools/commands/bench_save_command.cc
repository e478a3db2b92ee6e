// `engine bench save`: how long saving a snapshot takes, beside writing as many bytes and no more.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "engine/optim/optimizer.h"
#include "engine/train/saving/weights.h"
#include "io/base/deadline.h"
#include "io/checkpoint/late_arrays.h"
#include "models/model_catalog.h"
#include "tools/bench/bench_report.h"
#include "tools/commands/command.h"
#include "tools/report/exit_codes.h"

namespace tools {
namespace {

struct SaveFlags {
  std::string model = "resnet18-cifar", directory = ".", format = "table";
  int rounds = 11;
};

// As dd conv=fsync: a new file, blocks of 1 MiB, fsync.
void write_plainly(const std::string& path, const std::vector<std::byte>& bytes) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  bool good = fd >= 0;
  for (std::size_t at = 0; good && at < bytes.size();) {
    const ssize_t count =
        write(fd, bytes.data() + at, std::min<std::size_t>(1 << 20, bytes.size() - at));
    good = count > 0;
    if (good) at += static_cast<std::size_t>(count);
  }
  good = good && fsync(fd) == 0;
  const int error = errno;
  if (fd >= 0) close(fd);
  if (!good) throw io::CannotCreateError("cannot write " + path + ": " + std::strerror(error));
}

// A model with SGD's momentum, as it is saved by a training on one rank.
class SavedTraining {
 public:
  explicit SavedTraining(const std::string& model)
      : graph_(models::build_model(model, models::default_options(model))),
        state_(engine::ModelState::allocate(graph_, engine::DType::kF32)) {
    state_.initialize(graph_, 0);
    optimizer_ = engine::make_sgd({.momentum = 0.9}, state_.parameters.values);
  }

  void copy() {
    copy_.begin({});
    engine::export_state(state_, {}, copy_);
    for (const engine::Optimizer::State& s : optimizer_->state())
      engine::export_buffer(*s.buffer, state_, engine::ModelState::Kind::kParameter,
                            std::string(s.name) + "/", io::Section::kOptimizer, {}, copy_);
    copy_.checkpoint().global_step = ++step_;
  }
  std::string write(const std::string& directory) {
    return io::save_to_directory(copy_.checkpoint(), directory, 1, false,
                                 [this](std::size_t array) { copy_.complete(array); });
  }
  void load(const std::string& path) {
    const io::Checkpoint checkpoint = io::load_checkpoint(path);
    engine::import_state(checkpoint.arrays, path, /*exact=*/true, state_);
    for (const engine::Optimizer::State& s : optimizer_->state())
      engine::import_buffer(checkpoint.arrays, path, std::string(s.name) + "/",
                            io::Section::kOptimizer, *s.buffer);
  }

 private:
  engine::Graph graph_;
  engine::ModelState state_;
  std::unique_ptr<engine::Optimizer> optimizer_;
  engine::StateCopy copy_;
  std::int64_t step_ = 0;
};

struct Measured {
  const char* what;
  std::vector<double> ms;

  template <class Work>
  void time(const Work& work) {
    const double start = base::steady_seconds();
    work();
    ms.push_back(1e3 * (base::steady_seconds() - start));
  }
  double median() {
    std::sort(ms.begin(), ms.end());
    return ms[ms.size() / 2];
  }
};

std::string report(std::vector<Measured>& all, std::uint64_t bytes, const SaveFlags& flags) {
  const bool people = flags.format != "csv";
  std::vector<Cells> lines{people ? Cells{"what", "median ms", "min ms", "max ms", "of plain"}
                                  : Cells{"what", "p50_ms", "min_ms", "max_ms", "ratio"}};
  const double plain = all.front().median();
  for (Measured& m : all) {
    const double median = m.median();
    lines.push_back({m.what, fixed(median, 1), fixed(m.ms.front(), 1), fixed(m.ms.back(), 1),
                     fixed(median / plain, 2)});
  }
  if (!people) return csv_text(lines);
  return heading_text(bench_heading()) + flags.model + " with momentum: " + std::to_string(bytes) +
         " bytes, " + std::to_string(flags.rounds) + " rounds, in turn\n\n" +
         table_text(lines, {0}, flags.format == "md");
}

std::string measure(const SaveFlags& flags, const std::string& directory) {
  SavedTraining training(flags.model);
  std::vector<Measured> all{{"plain write and fsync", {}},
                            {"save", {}},
                            {"copy (what --save-async adds to a step)", {}},
                            {"load", {}}};
  training.copy();
  const std::vector<std::byte> bytes = io::read_file(training.write(directory));
  const std::string plain = directory + "/plain";
  for (int round = 0; round < flags.rounds; ++round) {
    all[0].time([&] { write_plainly(plain, bytes); });
    std::filesystem::remove(plain);
    std::string path;
    all[1].time([&] {
      all[2].time([&] { training.copy(); });
      path = training.write(directory);
    });
    all[3].time([&] { training.load(path); });
  }
  return report(all, bytes.size(), flags);
}

}  // namespace

int bench_save_command(const Arguments& arguments) {
  CLI::App app(
      "Measures saving and loading a snapshot of a model with SGD's momentum, in turn with a plain "
      "write and fsync of the same bytes.",
      "engine bench save");
  SaveFlags flags;
  app.add_option("--model", flags.model, "a built-in model")->capture_default_str();
  app.add_option("--dir", flags.directory, "where to write, in a folder that is removed afterwards")
      ->capture_default_str();
  app.add_option("--rounds", flags.rounds, "of one measurement each")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--format", flags.format, "table, csv or md")
      ->check(CLI::IsMember({"table", "csv", "md"}))
      ->capture_default_str();
  if (!parse(app, arguments)) return kExitOk;
  std::string folder = flags.directory + "/bench-save-XXXXXX";
  if (mkdtemp(folder.data()) == nullptr)
    throw io::CannotCreateError("cannot create a folder in " + flags.directory + ": " +
                                std::strerror(errno));
  struct Cleanup {
    const std::string& folder;
    ~Cleanup() {
      std::error_code ignored;
      std::filesystem::remove_all(folder, ignored);
    }
  } const cleanup{folder};
  const std::string text = measure(flags, folder);
  std::fwrite(text.data(), 1, text.size(), stdout);
  return kExitOk;
}

}  // namespace tools
