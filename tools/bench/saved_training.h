// Shared by the benchmarks of files: a model that is saved again and again, the same bytes written
// plainly, a folder for them, and times.
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

// A folder in `directory`, removed with everything in it at the end. From now on a first signal to
// stop is one that Measured::time() looks at, so that the folder is removed then, too.
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

// As dd conv=fsync: a new file, blocks of 1 MiB, fsync. Throws io::CannotCreateError.
void write_plainly(const std::string& path, const std::vector<std::byte>& bytes);

// A model with SGD's momentum, as it is saved by a training on one rank.
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
  // Of rounds, in milliseconds.
  const char* what;
  std::vector<double> ms;

  template <class Work>
  void time(const Work& work) {
    const double start = base::steady_seconds();
    work();
    ms.push_back(1e3 * (base::steady_seconds() - start));
    end_if_asked_to();
  }
  double median();  // sorts them
};

}  // namespace tools
