// Implements the files of benchmarks.
#include "tools/bench/saved_training.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>

#include "engine/train/saving/state_target.h"
#include "engine/train/saving/weights.h"
#include "io/base/files/io_error.h"
#include "io/base/files/system_error_text.h"
#include "io/checkpoint/checkpoint_directory.h"
#include "io/checkpoint/late_arrays.h"
#include "models/model_catalog.h"
#include "tools/launch/workers/stop_signals.h"
#include "tools/report/output/exit_codes.h"

namespace tools {

void end_if_asked_to() {
  if (const int signal = stop_signal_flag(); signal != 0) throw StoppedError(signal);
}

BenchFolder::BenchFolder(const std::string& directory) : path_(directory + "/bench-XXXXXX") {
  install_stop_signals();
  if (mkdtemp(path_.data()) == nullptr)
    throw io::CannotCreateError("cannot create a folder in " + directory + ": " +
                                base::system_error_text(errno));
}

BenchFolder::~BenchFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

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
  if (!good)
    throw io::CannotCreateError("cannot write " + path + ": " + base::system_error_text(error));
}

SavedTraining::SavedTraining(const std::string& model)
    : graph_(models::build_model(model, models::default_options(model))),
      state_(engine::ModelState::allocate(graph_, engine::DType::kF32)) {
  state_.initialize(graph_, 0);
  optimizer_ = engine::make_optimizer("sgd", {{"momentum", 0.9}}, state_.parameters.values);
}

void SavedTraining::copy() {
  copy_.begin({});
  engine::export_state(state_, {}, copy_);
  for (const engine::Optimizer::State& s : optimizer_->state())
    engine::export_buffer(*s.buffer, state_, engine::ModelState::Kind::kParameter,
                          std::string(s.name) + "/", io::Section::kOptimizer, {}, copy_);
  copy_.checkpoint().global_step = ++step_;
}

std::string SavedTraining::write(const std::string& directory) {
  return io::save_to_directory(copy_.checkpoint(), directory, 1, false,
                               [this](std::size_t array) { copy_.complete(array); });
}

void SavedTraining::load(const std::string& path) {
  engine::StateTarget target;
  target.add(state_);
  for (const engine::Optimizer::State& s : optimizer_->state())
    target.add(*s.buffer, std::string(s.name) + "/", io::Section::kOptimizer);
  const io::Checkpoint checkpoint = io::load_checkpoint(*io::open_bytes(path), target);
  engine::import_state(checkpoint.arrays, path, /*exact=*/true, state_);
  for (const engine::Optimizer::State& s : optimizer_->state())
    engine::import_buffer(checkpoint.arrays, path, std::string(s.name) + "/",
                          io::Section::kOptimizer, *s.buffer);
}

double Measured::median() {
  std::sort(ms.begin(), ms.end());
  return ms[ms.size() / 2];
}

}  // namespace tools
