// Helpers that the file benchmarks share: a model that is saved repeatedly, a plain write of the
// same bytes, a folder for the files, and times.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/graph/graph.h"
#include "engine/graph/model_state.h"
#include "engine/optim/optimizer.h"
#include "engine/train/saving/state_copy.h"
#include "io/base/time/deadline.h"

namespace tools {

// A folder in `directory`, removed with its contents at the end. From its construction on,
// Measured::time() handles a first stop signal, so that the folder is also removed then.
class BenchFolder {
 public:
  explicit BenchFolder(const std::string& directory);  // throws io::CannotCreateError
  ~BenchFolder();
  BenchFolder(const BenchFolder&) = delete;
  BenchFolder& operator=(const BenchFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// Writes like dd conv=fsync: a new file, blocks of 1 MiB, fsync. Throws io::CannotCreateError.
void write_plainly(const std::string& path, const std::vector<std::byte>& bytes);

// A model with SGD's momentum, saved as by a training run on one rank.
class SavedTraining {
 public:
  explicit SavedTraining(const std::string& model);

  void copy();
  std::string write(const std::string& directory);
  void load(const std::string& path);

 private:
  engine::Graph graph_;
  engine::ModelState state_;
  std::unique_ptr<engine::Optimizer> optimizer_;
  engine::StateCopy copy_;
  std::int64_t step_ = 0;
};

void end_if_asked_to();  // throws StoppedError

struct Measured {
  // The times of the rounds, in milliseconds.
  const char* what;
  std::vector<double> ms;

  template <class Work>
  void time(const Work& work) {
    const double start = base::steady_seconds();
    work();
    ms.push_back(1e3 * (base::steady_seconds() - start));
    end_if_asked_to();
  }
  double median();  // sorts the times
};

}  // namespace tools
