// cuBLASLt for the emulated device: a product as cuBLAS' documentation defines it, column-major, in
// plain loops. CUBLASLT_ON_CPU_REFUSES=1: the heuristic knows no algorithm.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "io/base/numbers/element_type.h"
#include "tests/emulator/simt/simt.h"

namespace {

constexpr int kOk = 0, kInvalid = 7, kNotSupported = 15;

struct Product {
  int compute = 0, scale = 0, transpose_a = 0, transpose_b = 0;
};
struct Layout {
  int type = 0;
  std::uint64_t rows = 0, columns = 0;
  std::int64_t pitch = 0;
};
struct Preference {
  std::size_t workspace_bytes = 0;
};
struct Algorithm {
  std::uint64_t data[8];
};
struct Heuristic {
  Algorithm algorithm;
  std::size_t workspace_bytes;
  int state;
  float waves;
  int reserved[4];
};
constexpr std::uint64_t kMark = 0x616c676f72697468u;

// The element of row i and column j of a column-major matrix.
double element(const Layout& layout, const void* data, std::uint64_t i, std::uint64_t j) {
  const auto at = static_cast<std::int64_t>(j) * layout.pitch + static_cast<std::int64_t>(i);
  if (layout.type == 0) return static_cast<const float*>(data)[at];
  if (layout.type == 2) return base::to_float(static_cast<const base::f16*>(data)[at]);
  return base::to_float(static_cast<const base::bf16*>(data)[at]);
}
void set_element(const Layout& layout, void* data, std::uint64_t i, std::uint64_t j, float value) {
  const auto at = static_cast<std::int64_t>(j) * layout.pitch + static_cast<std::int64_t>(i);
  if (layout.type == 0)
    static_cast<float*>(data)[at] = value;
  else if (layout.type == 2)
    static_cast<base::f16*>(data)[at] = base::from_float<base::f16>(value);
  else
    static_cast<base::bf16*>(data)[at] = base::from_float<base::bf16>(value);
}

// d = op(a) op(b): [m, k] times [k, n].
bool fits(const Product& p, const Layout& a, const Layout& b, const Layout& d) {
  const std::uint64_t m = p.transpose_a ? a.columns : a.rows,
                      k = p.transpose_a ? a.rows : a.columns,
                      n = p.transpose_b ? b.rows : b.columns,
                      depth = p.transpose_b ? b.columns : b.rows;
  bool good = k == depth && d.rows == m && d.columns == n && a.type == b.type &&
              (d.type == a.type || d.type == 0);
  for (const Layout* each : {&a, &b, &d})
    good = good && each->pitch >= static_cast<std::int64_t>(each->rows);
  // Floats may be rounded to what a product says; halves are taken as they are.
  return good && p.scale == 0 &&
         (p.compute == 68 ||
          (a.type == 0 && (p.compute == 74 || p.compute == 75 || p.compute == 77)));
}

}  // namespace

extern "C" {

std::size_t cublasLtGetVersion() { return 130002; }
const char* cublasLtGetStatusString(int status) {
  return status == kNotSupported ? "not supported"
         : status == kInvalid    ? "invalid value"
                                 : "failed";
}
int cublasLtCreate(void** handle) { return *handle = new int(0), kOk; }
int cublasLtDestroy(void* handle) { return delete static_cast<int*>(handle), kOk; }

int cublasLtMatmulDescCreate(void** product, int compute, int scale) {
  return *product = new Product{.compute = compute, .scale = scale}, kOk;
}
int cublasLtMatmulDescSetAttribute(void* product, int attribute, const void* value,
                                   std::size_t bytes) {
  if (bytes != sizeof(int) || (attribute != 3 && attribute != 4)) return kInvalid;
  auto& p = *static_cast<Product*>(product);
  std::memcpy(attribute == 3 ? &p.transpose_a : &p.transpose_b, value, bytes);
  return kOk;
}
int cublasLtMatmulDescDestroy(void* product) { return delete static_cast<Product*>(product), kOk; }

int cublasLtMatrixLayoutCreate(void** layout, int type, std::uint64_t rows, std::uint64_t columns,
                               std::int64_t pitch) {
  if (type != 0 && type != 2 && type != 14) return kInvalid;
  return *layout = new Layout{type, rows, columns, pitch}, kOk;
}
int cublasLtMatrixLayoutDestroy(void* layout) { return delete static_cast<Layout*>(layout), kOk; }

int cublasLtMatmulPreferenceCreate(void** preference) { return *preference = new Preference, kOk; }
int cublasLtMatmulPreferenceSetAttribute(void* preference, int attribute, const void* value,
                                         std::size_t bytes) {
  if (attribute != 1 || bytes != sizeof(std::size_t)) return kInvalid;
  std::memcpy(&static_cast<Preference*>(preference)->workspace_bytes, value, bytes);
  return kOk;
}
int cublasLtMatmulPreferenceDestroy(void* preference) {
  return delete static_cast<Preference*>(preference), kOk;
}

int cublasLtMatmulAlgoGetHeuristic(void* handle, void* product, void* a, void* b, void* c, void* d,
                                   void* preference, int wanted, Heuristic* results, int* found) {
  *found = 0;
  if (handle == nullptr || preference == nullptr || c == nullptr || wanted < 1) return kInvalid;
  const char* refuses = std::getenv("CUBLASLT_ON_CPU_REFUSES");
  if ((refuses != nullptr && *refuses == '1') ||
      !fits(*static_cast<Product*>(product), *static_cast<Layout*>(a), *static_cast<Layout*>(b),
            *static_cast<Layout*>(d)))
    return kNotSupported;
  *results = {};
  results->algorithm.data[0] = kMark;
  *found = 1;
  return kOk;
}

int cublasLtMatmul(void* handle, void* product, const void* alpha, const void* a, void* a_layout,
                   const void* b, void* b_layout, const void* beta, const void* /*c*/,
                   void* /*c_layout*/, void* d, void* d_layout, const Algorithm* algorithm,
                   void* workspace, std::size_t workspace_bytes, void* stream) {
  if (handle == nullptr || algorithm == nullptr || algorithm->data[0] != kMark ||
      (workspace == nullptr && workspace_bytes > 0))
    return kInvalid;
  if (*static_cast<const float*>(alpha) != 1 || *static_cast<const float*>(beta) != 0)
    return kNotSupported;
  const Product p = *static_cast<Product*>(product);
  const Layout of_a = *static_cast<Layout*>(a_layout), of_b = *static_cast<Layout*>(b_layout),
               of_d = *static_cast<Layout*>(d_layout);
  if (!fits(p, of_a, of_b, of_d)) return kNotSupported;
  simt::enqueue(stream, [=] {
    const std::uint64_t depth = p.transpose_a ? of_a.rows : of_a.columns;
    for (std::uint64_t j = 0; j < of_d.columns; ++j)
      for (std::uint64_t i = 0; i < of_d.rows; ++i) {
        double sum = 0;
        for (std::uint64_t k = 0; k < depth; ++k)
          sum += (p.transpose_a ? element(of_a, a, k, i) : element(of_a, a, i, k)) *
                 (p.transpose_b ? element(of_b, b, j, k) : element(of_b, b, k, j));
        set_element(of_d, d, i, j, static_cast<float>(sum));
      }
  });
  return kOk;
}

}  // extern "C"
