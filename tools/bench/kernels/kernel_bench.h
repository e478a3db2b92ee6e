// `engine bench kernels`: measures the time and the error against float64 of a case on a device,
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
  // off, tf32, O1, O2, bf16: what a CUDA device stores and multiplies in. On the CPU: off, or bf16,
  // for products of f32 that is rounded.
  std::string amp = "off";
  engine::Convolutions convolutions = engine::Convolutions::kAuto;  // on the CPU
  int threads = 1;
  double seconds = 0.2;  // measuring time of a case
};

// What this device can do at most: measured, in the same run.
struct Ceilings {
  double flops = 0;  // a second, of multiply-adds in the type that products have; 0: unknown
  double bytes_per_second = 0;  // read and written, of a copy much larger than the caches
  std::string instruction{};    // of the multiply-adds, on a CUDA device: "wgmma m64n128k16 bf16"
};

// What a CUDA device's processor holds at once of a call's largest kernel, the one with most
// threads: by its registers, threads and shared memory, not measured.
struct Occupancy {
  int blocks = 0, warps = 0;
};

// How a product can be cut, and the time of it.
struct CutTime {
  int rows = 0, columns = 0, splits = 0;  // the tile; parts of k
  bool warpgroup = false;
  bool chosen = false;  // by the planner
  double seconds = 0;
};

class KernelBench {
 public:
  explicit KernelBench(const KernelBenchOptions& options);
  ~KernelBench();

  Ceilings ceilings();
  double median_seconds(const KernelCase& test);  // of a call
  Occupancy occupancy(const KernelCase& test);    // zeros on a CPU
  // Of a call of cuBLASLt with the operands of a product on a CUDA device, alone: without the bias
  // that the case may have. Nothing where cuBLASLt has no such product.
  std::optional<double> cublaslt_seconds(const KernelCase& test, CublasLt& library);
  // The largest difference of an element of the product from this program's, relative to the
  // largest magnitude; nothing as above.
  std::optional<double> cublaslt_difference(const KernelCase& test, CublasLt& library);
  // Of a product on a CUDA device with each tile and number of parts; nothing for other operators.
  std::vector<CutTime> cut_times(const KernelCase& test);
  // The largest difference of an output from float64 on the CPU, relative to the output's largest
  // magnitude; inf where a value is not finite. 0 for operators without floating outputs.
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
  engine::Arena numbers_;  // on a CUDA device: epoch, fault
  double tick_ = 0;
};

// Bytes that a call must read and write at least.
double moved_bytes(const KernelCase& test, engine::DType stored);

struct KernelRow {
  std::string op, model, shape, type;
  double seconds = 0, flops = 0, bytes = 0, error = 0;
  double bound = 0;  // seconds, by the ceilings; 0: unknown
  bool by_flops = false;
  Occupancy occupancy{};  // blocks 0: unknown
  std::optional<double> cublaslt_seconds{};
};
KernelRow make_row(const KernelCase& test, engine::DType stored, const std::string& type,
                   const Ceilings& ceilings);
// What stands above a report.
struct KernelHeading {
  BenchHeading bench;
  std::string device;
  Ceilings ceilings = {};
  bool cuda = false;          // then with occupancy, and times of cuBLASLt
  std::string cublaslt = {};  // which one, or why there is none; "" on a CPU
};
// A line of CSV for each, for planners to be fitted to; the heading where `test` is null.
std::string cuts_text(const KernelCase* test, const std::string& type,
                      const std::vector<CutTime>& times);
std::string kernels_text(const KernelHeading& heading, const std::vector<KernelRow>& rows,
                         ReportFormat format);

// The rate of independent multiply-adds on the calling thread, flop/s: by its CPU time, or by the
// clock; of float32, or of bf16 with sums in float32. 0 where the processor is none that this is
// written for.
double fma_rate(bool cpu_time, engine::Products products = engine::Products::kF32);

}  // namespace tools
