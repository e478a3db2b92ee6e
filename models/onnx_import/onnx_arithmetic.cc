// Arithmetic on the elements of constants.
#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "models/onnx_import/onnx_folding.h"
#include "models/onnx_translation/onnx_plain.h"

namespace models {
namespace {

using Numbers = std::vector<std::int64_t>;

// Mod with fmod=1: the remainder has the sign of the dividend.
constexpr std::int64_t kOnnxInteger = 7;  // ONNX's int64
constexpr const char* kRemainderOfC = "Mod of C";

std::int64_t times_batch(std::int64_t count) {
  return count > 0 && count <= kMaxOnnxExtent ? kOnnxUnknown + count : kOnnxUnknown;
}

// A product of m times the number of samples and a number.
std::int64_t multiplied(std::int64_t m, std::int64_t number) {
  if (m < 1 || number < 1 || number > kMaxOnnxExtent) return kOnnxUnknown;
  return times_batch(m * number);
}

// A quotient of m times the number of samples.
std::int64_t divided(std::int64_t m, std::int64_t b) {
  const std::int64_t n = batches_of(b);
  if (m < 1) return kOnnxUnknown;
  if (n > 0) return m % n == 0 ? m / n : kOnnxUnknown;
  return b > 0 && m % b == 0 ? times_batch(m / b) : kOnnxUnknown;
}

// From 0 to b - 1, as the remainder of Python.
std::int64_t remainder_of(std::int64_t a, std::int64_t b) {
  if (b <= 0) return kOnnxUnknown;
  const std::int64_t rest = a % b;
  return rest < 0 ? rest + b : rest;
}

// A sum, difference, product or quotient with an operand that is a multiple of the number of
// samples.
std::int64_t computed_batches(const std::string& type, std::int64_t a, std::int64_t b) {
  const std::int64_t m = batches_of(a), n = batches_of(b);
  if (type == "Mul") return m > 0 ? multiplied(m, b) : multiplied(n, a);
  if (type == "Div") return divided(m, b);
  if (type == "Mod" || type == kRemainderOfC)
    return m > 0 && b > 0 && m % b == 0 ? 0 : kOnnxUnknown;
  if (type == "Sub" && m > 0 && m == n) return 0;
  if ((type == "Add" || type == "Sub") && b == 0) return a;
  return type == "Add" && a == 0 ? b : kOnnxUnknown;
}

// Whether two extents are equal; an unknown one may be any number from 0.
std::int64_t equal_extents(std::int64_t a, std::int64_t b) {
  if (a != kOnnxUnknown && b != kOnnxUnknown) return a == b;
  const std::int64_t other = a == kOnnxUnknown ? b : a;
  return other < 0 && !is_onnx_symbol(other) ? 0 : kOnnxUnknown;
}

double computed(const std::string& type, double a, double b) {
  if (type == "Add") return a + b;
  if (type == "Sub") return a - b;
  if (type == "Mul") return a * b;
  if (type == "Div") return a / b;
  if (type == "Pow") return std::pow(a, b);
  if (type == "Max") return std::fmax(a, b);
  if (type == "Min") return std::fmin(a, b);
  if (type == kRemainderOfC) return std::fmod(a, b);
  throw OnnxUnsupported("of floats");
}

bool is_comparison(const std::string& type) {
  return type == "Equal" || type.starts_with("Less") || type.starts_with("Greater");
}

template <class T>
bool holds(const std::string& type, T a, T b) {
  if (type == "Equal") return a == b;
  if (type == "Less") return a < b;
  if (type == "LessOrEqual") return a <= b;
  return type == "Greater" ? a > b : a >= b;
}

// A power from 0 on.
std::int64_t power_of(std::int64_t a, std::int64_t b) {
  if (b < 0 || is_onnx_symbol(a) || is_onnx_symbol(b)) return kOnnxUnknown;
  if (b > 0 && (a == 0 || a == 1)) return a;
  if (a == -1) return b % 2 == 0 ? 1 : -1;
  std::int64_t result = 1;
  for (std::int64_t i = 0; i < b; ++i)  // ends after 62 products
    if (__builtin_mul_overflow(result, a, &result)) return kOnnxUnknown;
  return result;
}

// The result of arithmetic on two numbers.
std::int64_t computed_number(const std::string& type, std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  if (type == "Div") return b == 0 || b == -1 ? kOnnxUnknown : a / b;
  if (type == "Mod") return remainder_of(a, b);
  if (type == kRemainderOfC) return b == 0 || b == -1 ? kOnnxUnknown : a % b;
  if (type == "Pow") return power_of(a, b);
  const bool overflows = type == "Add"   ? __builtin_add_overflow(a, b, &result)
                         : type == "Sub" ? __builtin_sub_overflow(a, b, &result)
                                         : __builtin_mul_overflow(a, b, &result);
  return overflows ? kOnnxUnknown : result;
}

OnnxTensor folded(OnnxOperator& op, const std::string& type, OnnxTensor a, OnnxTensor b) {
  const bool is_test = is_comparison(type);
  const bool has_reals = a.is_real || b.is_real;
  if (type == "Pow" && !a.is_real && b.is_real)  // its result has the type of the base
    return converted(op, folded(op, type, as_reals(std::move(a)), std::move(b)), kOnnxInteger);
  if (has_reals) a = as_reals(std::move(a)), b = as_reals(std::move(b));
  const Numbers shape = broadcast_shape(a.shape, b.shape);
  a = expanded(op, a, shape), b = expanded(op, b, shape);
  OnnxTensor result = zeros(op, shape, has_reals && !is_test);
  for (std::size_t i = 0; i < count_of(result); ++i) {
    if (result.is_real)
      result.reals[i] = computed(type, a.reals[i], b.reals[i]);
    else if (!has_reals)
      result.integers[i] = computed_extent(type, a.integers[i], b.integers[i]);
    else
      result.integers[i] = holds(type, a.reals[i], b.reals[i]);
  }
  return result;
}

OnnxTensor fold_binary(OnnxOperator& op) {
  const bool is_of_c = op.node().type == "Mod" && op.integer("fmod", 0) != 0;
  const std::string type = is_of_c ? kRemainderOfC : op.node().type;
  const std::size_t count = op.node().inputs.size();
  const bool takes_any = type == "Max" || type == "Min";
  if (takes_any ? count < 1 : count != 2)
    throw OnnxUnsupported(std::to_string(count) + " constants, expected 2");
  OnnxTensor all = op.tensor(0);
  for (std::size_t i = 1; i < count; ++i) all = folded(op, type, std::move(all), op.tensor(i));
  return all;
}

// A sum, product, maximum or minimum over some dimensions of a constant; over all by default.
OnnxTensor fold_reduction(OnnxOperator& op) {
  const OnnxTensor all = op.tensor(0);
  const std::string& type = op.node().type;
  const std::string pair = type == "ReduceSum"    ? "Add"
                           : type == "ReduceProd" ? "Mul"
                           : type == "ReduceMax"  ? "Max"
                                                  : "Min";
  const Numbers axes = op.has_input(1) ? op.numbers(1) : op.integers("axes").value_or(Numbers{});
  const bool has_all = axes.empty() && op.integer("noop_with_empty_axes", 0) == 0;
  std::vector<bool> is_gone(all.shape.size(), has_all);
  for (const std::int64_t axis : axes) is_gone[dimension_of(axis, is_gone.size())] = true;
  Numbers kept = all.shape, parts = all.shape;
  for (std::size_t d = 0; d < kept.size(); ++d) (is_gone[d] ? kept : parts)[d] = 1;
  const Numbers strides = strides_of(all.shape);
  std::optional<OnnxTensor> result;
  for_each_element(parts, strides, 0, [&](std::size_t, std::size_t offset) {
    OnnxTensor part = strided(op, all, kept, strides, static_cast<std::int64_t>(offset));
    result = result ? folded(op, pair, std::move(*result), std::move(part)) : std::move(part);
  });
  if (!result) throw OnnxUnsupported("of no elements");
  if (op.integer("keepdims", 1) != 0) return *result;
  result->shape.clear();
  for (std::size_t d = 0; d < kept.size(); ++d)
    if (!is_gone[d]) result->shape.push_back(kept[d]);
  return *result;
}

using Function = double (*)(double);

Function function_of(const std::string& type) {
  static const std::map<std::string, Function> functions{
      {"Sqrt", [](double x) { return std::sqrt(x); }},
      {"Floor", [](double x) { return std::floor(x); }},
      {"Ceil", [](double x) { return std::ceil(x); }},
      {"Round", [](double x) { return std::nearbyint(x); }},
      {"Neg", [](double x) { return -x; }},
      {"Abs", [](double x) { return std::abs(x); }},
      {"Exp", [](double x) { return std::exp(x); }},
      {"Log", [](double x) { return std::log(x); }},
      {"Sin", [](double x) { return std::sin(x); }},
      {"Cos", [](double x) { return std::cos(x); }},
      {"Reciprocal", [](double x) { return 1 / x; }}};
  return functions.at(type);
}

OnnxTensor fold_unary(OnnxOperator& op) {
  const std::string& type = op.node().type;
  OnnxTensor all = op.tensor(0);
  if (type == "Not") {
    if (all.is_real) throw OnnxUnsupported("of floats");
    for (std::int64_t& value : all.integers)
      if (value != kOnnxUnknown) value = value == 0;
    return all;
  }
  if (type == "Neg" && !all.is_real) {
    for (std::int64_t& value : all.integers) value = computed_extent("Sub", std::int64_t{0}, value);
    return all;
  }
  if (type == "Abs" && !all.is_real) {
    for (std::int64_t& value : all.integers)
      if (!is_onnx_symbol(value)) value = std::abs(value);
    return all;
  }
  all = as_reals(std::move(all));
  const Function function = function_of(type);
  for (double& value : all.reals) value = function(value);
  return all;
}

// Limits that are missing do not apply.
OnnxTensor fold_clip(OnnxOperator& op) {
  OnnxTensor all = op.tensor(0);
  for (const std::size_t limit : {1U, 2U}) {
    if (!op.has_input(limit)) continue;
    const OnnxTensor found = op.tensor(limit);
    if (count_of(found) != 1 || found.is_real != all.is_real)
      throw OnnxUnsupported("limits of another type");
    const char* type = limit == 1 ? "Max" : "Min";
    for (double& value : all.reals) value = computed(type, value, found.reals[0]);
    for (std::int64_t& value : all.integers)
      value = computed_extent(type, value, found.integers[0]);
  }
  return all;
}

OnnxTensor fold_cast(OnnxOperator& op) { return converted(op, op.tensor(0), op.integer("to", 0)); }

OnnxTensor fold_where(OnnxOperator& op) {
  OnnxTensor choice = op.tensor(0), a = op.tensor(1), b = op.tensor(2);
  if (choice.is_real || a.is_real != b.is_real) throw OnnxUnsupported("of different types");
  expect_known_choice(choice);
  const Numbers shape = broadcast_shape(broadcast_shape(choice.shape, a.shape), b.shape);
  choice = expanded(op, choice, shape), a = expanded(op, a, shape), b = expanded(op, b, shape);
  for (std::size_t i = 0; i < choice.integers.size(); ++i)
    if (choice.integers[i] != 0) copy_element(a, i, b, i);
  return b;
}

}  // namespace

void expect_known_choice(const OnnxTensor& condition) {
  if (std::ranges::count(condition.integers, kOnnxUnknown) > 0)
    throw OnnxUnsupported(
        "a choice by an extent that the file leaves open; export the network with a fixed height "
        "and width");
}

std::int64_t computed_extent(const std::string& type, std::int64_t a, std::int64_t b) {
  if (type == "Equal") return equal_extents(a, b);
  if (is_onnx_symbol(a) || is_onnx_symbol(b)) return computed_batches(type, a, b);
  if (type == "Max") return std::max(a, b);
  if (type == "Min") return std::min(a, b);
  if (is_comparison(type)) return holds(type, a, b);
  if (type == "Xor") return (a != 0) != (b != 0);
  if (type == "And") return a != 0 && b != 0;
  if (type == "Or") return a != 0 || b != 0;
  return computed_number(type, a, b);
}

std::map<std::string, OnnxFold> onnx_arithmetic() {
  std::map<std::string, OnnxFold> all{
      {"Cast", fold_cast}, {"Where", fold_where}, {"Clip", fold_clip}};
  for (const char* name : {"Add", "Sub", "Mul", "Div", "Mod", "Pow", "Equal", "Less", "LessOrEqual",
                           "Greater", "GreaterOrEqual", "And", "Or", "Xor", "Max", "Min"})
    all.emplace(name, fold_binary);
  for (const char* name : {"ReduceSum", "ReduceProd", "ReduceMax", "ReduceMin"})
    all.emplace(name, fold_reduction);
  for (const char* name : {"Sqrt", "Neg", "Not", "Floor", "Ceil", "Round", "Abs", "Exp", "Log",
                           "Sin", "Cos", "Reciprocal"})
    all.emplace(name, fold_unary);
  return all;
}

}  // namespace models
