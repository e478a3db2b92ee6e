// Measures cases for `engine bench kernels`: the time and the error against float64 on a device,
// and the device's peak rates.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/core/arena.h"
#include "engine/core/cuda.h"
#include "engine/core/thread_pool.h"
#include "tools/bench/bench_report.h"
#include "tools/bench/kernels/kernel_case.h"

namespace tools {

struct KernelBenchOptions {
  engine::Device device{};
  // off, tf32, O1, O2, bf16: the types that a CUDA device stores and multiplies in. On the CPU:
  // off, or bf16, for products of f32 that is rounded.
  std::string amp = "off";
  engine::Convolutions convolutions = engine::Convolutions::kAuto;  // for the CPU
  int threads = 1;
  double seconds = 0.2;  // measuring time per case
};

// The peak rates of this device, measured in the same run.
struct Ceilings {
  double flops = 0;  // per second, for multiply-adds in the type of the products; 0: unknown
  double bytes_per_second = 0;  // read and written, in a copy much larger than the caches
  // Instruction of the multiply-adds, on a CUDA device: e.g. "wgmma m64n128k16 bf16".
  std::string instruction{};
};

// The occupancy of a CUDA multiprocessor by a call's largest kernel, the one with most threads:
// from its registers, threads and shared memory, not measured.
struct Occupancy {
  int blocks = 0, warps = 0;
};

// A tiling of a product, and its time.
struct CutTime {
  int rows = 0, columns = 0, splits = 0;  // the tile; parts of k
  bool warpgroup = false;
  bool chosen = false;  // true if it is the planner's choice
  double seconds = 0;
};

class KernelBench {
 public:
  explicit KernelBench(const KernelBenchOptions& options);
  ~KernelBench();

  Ceilings ceilings();
  double median_seconds(const KernelCase& test);  // per call
  Occupancy occupancy(const KernelCase& test);    // zeros on a CPU
  // Returns the time of a call of cuBLASLt with the operands of a product on a CUDA device, without
  // the bias that the case may have. Empty if cuBLASLt has no such product.
  std::optional<double> cublaslt_seconds(const KernelCase& test, CublasLt& library);
  // Returns the largest difference of an element of cuBLASLt's product from this program's,
  // relative to the largest magnitude; nothing as above.
  std::optional<double> cublaslt_difference(const KernelCase& test, CublasLt& library);
  // Returns the time of a product on a CUDA device with each tile and number of parts; nothing for
  // other operators.
  std::vector<CutTime> cut_times(const KernelCase& test);
  // Returns the largest difference of an output from float64 on the CPU, relative to the output's
  // largest magnitude; inf if a value is not finite. 0 for operators without floating-point
  // outputs.
  double error(const KernelCase& test);
  engine::DType stored() const { return stored_; }

 private:
  class Operands;
  double time(const std::function<void()>& call);
  std::size_t scratch_bytes(const KernelCase& test) const;
  engine::KernelContext context(const engine::Arena& scratch);

  const KernelBenchOptions options_;
  engine::DType stored_ = engine::DType::kF32;
  engine::Products products_ = engine::Products::kF32;
  engine::ThreadPool pool_;
  std::unique_ptr<engine::cuda::Stream> stream_;
  engine::Arena numbers_;  // on a CUDA device: epoch, error flag
};

// Returns the minimum number of bytes that a call must read and write.
double moved_bytes(const KernelCase& test, engine::DType stored);

struct KernelRow {
  std::string op, model, shape, type;
  double seconds = 0, flops = 0, bytes = 0, error = 0;
  double bound = 0;  // seconds, from the ceilings; 0: unknown
  bool by_flops = false;
  Occupancy occupancy{};  // blocks 0: unknown
  std::optional<double> cublaslt_seconds{};
};
KernelRow make_row(const KernelCase& test, engine::DType stored, const std::string& type,
                   const Ceilings& ceilings);
// The heading of a report.
struct KernelHeading {
  BenchHeading bench;
  std::string device;
  Ceilings ceilings = {};
  bool cuda = false;          // if true, the report has occupancy and times of cuBLASLt
  std::string cublaslt = {};  // its version, or why there is none; "" on a CPU
};
// Returns one CSV line per time, as input for fitting planners; the heading if `test` is null.
std::string cuts_text(const KernelCase* test, const std::string& type,
                      const std::vector<CutTime>& times);
std::string kernels_text(const KernelHeading& heading, const std::vector<KernelRow>& rows,
                         ReportFormat format);

// Returns the rate of independent multiply-adds on the calling thread, in flop/s, by its CPU time
// or by the clock: of float32, or of bf16 with sums in float32. 0 if there is no implementation for
// the processor.
double fma_rate(bool cpu_time, engine::Products products = engine::Products::kF32);

}  // namespace tools
