// Declares and calls the few functions of cuBLASLt that are needed, by its documented C interface
// (cuBLAS documentation, "Using the cuBLASLt API", 12.0 and newer).
#include "tools/bench/kernels/cublaslt.h"

#include <dlfcn.h>

#include <array>
#include <cstddef>
#include <cstdlib>
#include <optional>
#include <vector>

#include "engine/core/arena.h"
#include "engine/core/cuda.h"
#include "io/base/files/io_error.h"

#if defined(ENGINE_HAS_CUDA) && !defined(ENGINE_CUDA_EMULATED)
#if __has_include(<cublasLt.h>)
#include <cublasLt.h>
#define ENGINE_HAS_CUBLASLT_HEADER 1
#endif
#endif

namespace tools {
namespace {

using engine::DType;
using Code = int;  // cublasStatus_t; 0 is success
using Handle = void*;

constexpr int kTransposeA = 3, kTransposeB = 4;  // cublasLtMatmulDescAttributes_t
constexpr int kMaxWorkspace = 1;                 // cublasLtMatmulPreferenceAttributes_t
constexpr std::size_t kWorkspaceBytes = std::size_t{32} << 20;

struct Heuristic {  // cublasLtMatmulHeuristicResult_t
  std::uint64_t algorithm[8];
  std::size_t workspace_bytes;
  Code state;
  float waves;
  int reserved[4];
};
static_assert(sizeof(Heuristic) == 96);

#if defined(ENGINE_HAS_CUBLASLT_HEADER)
static_assert(CUBLASLT_MATMUL_DESC_TRANSA == kTransposeA &&
              CUBLASLT_MATMUL_DESC_TRANSB == kTransposeB &&
              CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES == kMaxWorkspace);
static_assert(sizeof(cublasLtMatmulHeuristicResult_t) == sizeof(Heuristic) &&
              offsetof(cublasLtMatmulHeuristicResult_t, state) == offsetof(Heuristic, state));
static_assert(CUDA_R_32F == 0 && CUDA_R_16F == 2 && CUDA_R_16BF == 14 && CUBLAS_OP_T == 1);
static_assert(CUBLAS_COMPUTE_32F == 68 && CUBLAS_COMPUTE_32F_FAST_16F == 74 &&
              CUBLAS_COMPUTE_32F_FAST_16BF == 75 && CUBLAS_COMPUTE_32F_FAST_TF32 == 77);
#endif

int data_type(DType type) {  // cudaDataType_t
  return type == DType::kF32 ? 0 : type == DType::kF16 ? 2 : 14;
}

// Returns a cublasComputeType_t: sums in f32; f16 and bf16 are used unchanged, f32 is rounded as
// `products` requires.
int compute_type(DType type, engine::Products products) {
  using engine::Products;
  if (type != DType::kF32 || products == Products::kF32) return 68;
  return products == Products::kTf32 ? 77 : products == Products::kF16 ? 74 : 75;
}

}  // namespace

struct CublasLt::Library {
  void* file = nullptr;
  Handle handle = nullptr;
  engine::Arena workspace;
  std::string path;

  std::size_t (*version)() = nullptr;
  const char* (*text)(Code) = nullptr;
  Code (*create)(Handle*) = nullptr;
  Code (*destroy)(Handle) = nullptr;
  Code (*make_product)(Handle*, int compute, int scale) = nullptr;
  Code (*set_product)(Handle, int attribute, const void* value, std::size_t bytes) = nullptr;
  Code (*drop_product)(Handle) = nullptr;
  Code (*make_layout)(Handle*, int type, std::uint64_t rows, std::uint64_t columns,
                      std::int64_t pitch) = nullptr;
  Code (*drop_layout)(Handle) = nullptr;
  Code (*make_preference)(Handle*) = nullptr;
  Code (*set_preference)(Handle, int attribute, const void* value, std::size_t bytes) = nullptr;
  Code (*drop_preference)(Handle) = nullptr;
  Code (*choose)(Handle, Handle product, Handle a, Handle b, Handle c, Handle d, Handle preference,
                 int wanted, Heuristic*, int* found) = nullptr;
  Code (*multiply)(Handle, Handle product, const void* alpha, const void* a, Handle a_layout,
                   const void* b, Handle b_layout, const void* beta, const void* c, Handle c_layout,
                   void* d, Handle d_layout, const void* algorithm, void* workspace,
                   std::size_t workspace_bytes, void* stream) = nullptr;

  template <class F>
  void find(F*& function, const char* symbol) {
    function = reinterpret_cast<F*>(dlsym(file, symbol));
    if (function == nullptr)
      throw io::ConfigError("bench kernels: this libcublasLt has no " + std::string(symbol) +
                            "; ENGINE_CUBLASLT_LIBRARY=none leaves it out");
  }
  void expect(Code code, const char* what) const {
    if (code != 0)
      throw io::ConfigError(std::string("bench kernels: ") + what + ": " + text(code) +
                            "; ENGINE_CUBLASLT_LIBRARY=none leaves it out");
  }
  ~Library() {
    if (handle != nullptr) destroy(handle);
    if (file != nullptr) dlclose(file);
  }
};

namespace {

// Owns a descriptor of the library.
class Descriptor {
 public:
  using Drop = Code (*)(Handle);
  explicit Descriptor(Drop drop) : drop_(drop) {}
  ~Descriptor() {
    if (handle != nullptr) drop_(handle);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  Handle handle = nullptr;

 private:
  const Drop drop_;
};

}  // namespace

CublasLt::CublasLt() : library_(std::make_unique<Library>()) {}
CublasLt::~CublasLt() = default;

std::unique_ptr<CublasLt> CublasLt::load(std::string& missing) {
  const char* chosen = std::getenv("ENGINE_CUBLASLT_LIBRARY");
  const std::string named = chosen == nullptr ? "" : chosen;
  if (named == "none") {
    missing = "ENGINE_CUBLASLT_LIBRARY=none";
    return nullptr;
  }
  std::unique_ptr<CublasLt> made(new CublasLt);
  Library& l = *made->library_;
  std::vector<std::string> names{named};
#if defined(ENGINE_CUDA_EMULATED)
  if (named.empty()) {
    missing = "this build has no CUDA, only its emulator for tests";
    return nullptr;  // NVIDIA's library would find no device
  }
#endif
  if (named.empty()) {
    names = {"libcublasLt.so.13", "libcublasLt.so.12"};
    if (engine::cuda::versions().starts_with("runtime 12")) std::swap(names[0], names[1]);
  }
  for (const std::string& name : names) {
    if (l.file = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL); l.file != nullptr) break;
    if (missing.empty()) missing = dlerror();
  }
  if (l.file == nullptr) {
    if (named.empty()) return nullptr;
    throw io::ConfigError("bench kernels: cannot load ENGINE_CUBLASLT_LIBRARY (" + missing + ")");
  }
  l.find(l.version, "cublasLtGetVersion");
  l.find(l.text, "cublasLtGetStatusString");
  l.find(l.create, "cublasLtCreate");
  l.find(l.destroy, "cublasLtDestroy");
  l.find(l.make_product, "cublasLtMatmulDescCreate");
  l.find(l.set_product, "cublasLtMatmulDescSetAttribute");
  l.find(l.drop_product, "cublasLtMatmulDescDestroy");
  l.find(l.make_layout, "cublasLtMatrixLayoutCreate");
  l.find(l.drop_layout, "cublasLtMatrixLayoutDestroy");
  l.find(l.make_preference, "cublasLtMatmulPreferenceCreate");
  l.find(l.set_preference, "cublasLtMatmulPreferenceSetAttribute");
  l.find(l.drop_preference, "cublasLtMatmulPreferenceDestroy");
  l.find(l.choose, "cublasLtMatmulAlgoGetHeuristic");
  l.find(l.multiply, "cublasLtMatmul");
  Dl_info where{};
  if (dladdr(reinterpret_cast<void*>(l.multiply), &where) != 0 && where.dli_fname != nullptr)
    l.path = where.dli_fname;
  l.expect(l.create(&l.handle), "cublasLtCreate");
  l.workspace =
      engine::Arena(kWorkspaceBytes, {engine::Device::Kind::kCuda, engine::cuda::current_device()});
  return made;
}

std::string CublasLt::description() const {
  const std::size_t version = library_->version();  // e.g. 130002: 13.0.2
  return "cuBLASLt " + std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) +
         "." + std::to_string(version % 100) + " (" + library_->path + ")";
}

// cuBLASLt's matrices are column-major, so a matrix that is [rows, columns] here is its [columns,
// rows]: it computes c^T [n, m] = b^T a^T.
std::function<void()> CublasLt::product(const PlainProduct& shape, const ProductOperands& operands,
                                        engine::Products products, void* stream) {
  struct Made {
    explicit Made(const Library& l)
        : product(l.drop_product),
          first(l.drop_layout),
          second(l.drop_layout),
          result(l.drop_layout) {}
    Descriptor product, first, second, result;
    Heuristic chosen{};
  };
  const Library& l = *library_;
  const auto made = std::make_shared<Made>(l);
  const auto layout = [&](Descriptor& to, DType type, std::int64_t rows, std::int64_t columns) {
    l.expect(l.make_layout(&to.handle, data_type(type), static_cast<std::uint64_t>(rows),
                           static_cast<std::uint64_t>(columns), rows),
             "cublasLtMatrixLayoutCreate");
  };
  const auto transpose = [&](int which, bool wanted) {
    const int operation = wanted ? 1 : 0;  // cublasOperation_t
    l.expect(l.set_product(made->product.handle, which, &operation, sizeof operation),
             "cublasLtMatmulDescSetAttribute");
  };
  l.expect(l.make_product(&made->product.handle, compute_type(operands.type, products),
                          data_type(DType::kF32)),
           "cublasLtMatmulDescCreate");
  transpose(kTransposeA, shape.b_by_depth);
  transpose(kTransposeB, !shape.a_by_depth);
  layout(made->first, operands.type, shape.b_by_depth ? shape.k : shape.n,
         shape.b_by_depth ? shape.n : shape.k);
  layout(made->second, operands.type, shape.a_by_depth ? shape.k : shape.m,
         shape.a_by_depth ? shape.m : shape.k);
  layout(made->result, operands.result, shape.n, shape.m);
  Descriptor preference(l.drop_preference);
  l.expect(l.make_preference(&preference.handle), "cublasLtMatmulPreferenceCreate");
  l.expect(
      l.set_preference(preference.handle, kMaxWorkspace, &kWorkspaceBytes, sizeof kWorkspaceBytes),
      "cublasLtMatmulPreferenceSetAttribute");
  int found = 0;
  const Code code = l.choose(l.handle, made->product.handle, made->first.handle,
                             made->second.handle, made->result.handle, made->result.handle,
                             preference.handle, 1, &made->chosen, &found);
  if (code != 0 || found == 0 || made->chosen.state != 0) return nullptr;
  return [&l, made, operands, stream] {
    const float one = 1, zero = 0;
    l.expect(l.multiply(l.handle, made->product.handle, &one, operands.b, made->first.handle,
                        operands.a, made->second.handle, &zero, operands.c, made->result.handle,
                        operands.c, made->result.handle, made->chosen.algorithm, l.workspace.data(),
                        kWorkspaceBytes, stream),
             "cublasLtMatmul");
  };
}

}  // namespace tools
