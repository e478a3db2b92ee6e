// Einsum: products over named dimensions become MatMul's layers, those without a sum are products
// of elements, and one operand is a transposition.
#include <algorithm>
#include <string>

#include "io/base/text/escape_text.h"
#include "io/base/text/text_parts.h"
#include "models/onnx_import/onnx_operators.h"
#include "models/onnx_translation/onnx_combined.h"
#include "models/onnx_translation/onnx_plain.h"

namespace models {
namespace {

struct Equation {
  std::vector<std::string> operands;  // a letter for each dimension
  std::string output;
};

bool has(const std::string& letters, char letter) {
  return letters.find(letter) != std::string::npos;
}

std::string those_of(const std::string& letters, const auto& condition) {
  std::string chosen;
  std::ranges::copy_if(letters, std::back_inserter(chosen), condition);
  return chosen;
}

// Lets digits stand for the dimensions of "...", the last of them being 9.
std::string without_dots(std::string letters, std::size_t rank) {
  const std::size_t at = letters.find("...");
  if (at == std::string::npos) return letters;
  const std::size_t named = letters.size() - 3;
  std::string digits;
  for (std::size_t i = named; i < rank; ++i) digits.insert(digits.begin(), '9' - (i - named));
  return letters.replace(at, 3, digits);
}

// The letters that occur once, in their order, after the dimensions of "...".
std::string implied_output(const std::string& all) {
  std::string letters = all;
  std::ranges::sort(letters);
  std::string once = those_of(letters, [&](char letter) {
    return letter > '9' ? std::ranges::count(letters, letter) == 1 : true;
  });
  once.erase(std::unique(once.begin(), once.end()), once.end());
  return once;
}

// Whether each operand and the output have each dimension once, and nothing else is summed than
// dimensions of both operands.
bool is_supported(const Equation& equation, const std::vector<OnnxActivation>& values) {
  const auto& operands = equation.operands;
  if (operands.size() != values.size() || operands.size() > 2) return false;
  for (std::size_t i = 0; i < values.size(); ++i)
    if (operands[i].size() != values[i].shape.size()) return false;
  const std::string &first = operands[0], &last = operands.back();
  for (std::string letters : {equation.output, first, last}) {
    std::ranges::sort(letters);
    if (std::ranges::adjacent_find(letters) != letters.end()) return false;
  }
  return std::ranges::all_of(equation.output + first + last, [&](char letter) {
    const bool is_of_both = operands.size() == 2 && has(first, letter) && has(last, letter);
    return is_of_both || (has(equation.output, letter) && has(first + last, letter));
  });
}

Equation equation_of(OnnxOperator& op, const std::vector<OnnxActivation>& values) {
  const std::string given = op.text("equation", "");
  std::string text = those_of(given, [](char letter) { return letter != ' '; }), output;
  const std::size_t arrow = text.find("->");
  if (arrow != std::string::npos) output = text.substr(arrow + 2), text.resize(arrow);
  Equation found;
  std::string all;
  for (const std::string& letters : base::split_text(text, ',')) {
    const std::size_t i = found.operands.size(),
                      rank = i < values.size() ? values[i].shape.size() : 0;
    found.operands.push_back(without_dots(letters, std::min<std::size_t>(rank, 9)));
    all += found.operands.back();
  }
  const std::string implied = implied_output(all);
  const auto dots = static_cast<std::size_t>(
      std::ranges::count_if(implied, [](char letter) { return letter <= '9'; }));
  const std::size_t named = output.size() - std::min<std::size_t>(output.size(), 3);
  found.output = arrow == std::string::npos ? implied : without_dots(output, named + dots);
  if (!is_supported(found, values))
    throw OnnxUnsupported("equation '" + base::escape_text(given.substr(0, 80)) +
                          "', expected one or two operands with each dimension once, which is in "
                          "the output or in both; write it as products and sums");
  return found;
}

// Gives the value these dimensions; one without a letter of its own has an extent of 1.
void arrange(OnnxActivation& value, const std::string& letters, const std::string& wanted) {
  const auto dims = value.plain.dims;
  value.plain.dims.clear();
  for (const char letter : wanted) {
    const std::size_t at = letters.find(letter);
    value.plain.dims.push_back(at == std::string::npos ? std::vector<int>{} : dims[at]);
  }
  value.shape = shape_of(value.plain);
}

// Makes one dimension of the last `count` ones.
void join_last(OnnxActivation& value, std::size_t count) {
  std::vector<int> joined;
  auto& dims = value.plain.dims;
  for (std::size_t i = dims.size() - count; i < dims.size(); ++i)
    joined.insert(joined.end(), dims[i].begin(), dims[i].end());
  dims.resize(dims.size() - count);
  dims.push_back(std::move(joined));
  value.shape = shape_of(value.plain);
}

// The letter of the dimension that has the samples; 0: none.
char letter_of_samples(const OnnxActivation& value, const std::string& letters) {
  for (std::size_t i = 0; i < letters.size(); ++i)
    if (contains_samples(value.plain.dims[i])) return letters[i];
  return 0;
}

// A value that is the same for all samples gets their dimension if it shares another one with the
// output, so that both are products of as many matrices.
void add_samples(OnnxActivation& value, std::string& letters, char samples, bool shares) {
  if (samples == 0 || !shares || letter_of_samples(value, letters) != 0) return;
  letters.insert(letters.begin(), samples);
  value.plain.dims.insert(value.plain.dims.begin(), {kOnnxBatchAxis});
}

// The sum over `inner`, the letters of both that the output does not have: [shared..., rows, inner]
// times [shared..., inner, columns].
void set_sum(OnnxOperator& op, OnnxActivation a, OnnxActivation b, std::string first,
             std::string second, const std::string& output) {
  if (letter_of_samples(a, first) == 0) std::swap(a, b), std::swap(first, second);
  const auto is_shared = [&](char c) { return has(first, c) && has(second, c) && has(output, c); };
  add_samples(b, second, letter_of_samples(a, first), std::ranges::any_of(second, is_shared));
  const std::string shared = those_of(first, is_shared);
  const std::string inner = those_of(first, [&](char c) { return !has(output, c); });
  const std::string rows = those_of(first, [&](char c) { return has(output, c) && !is_shared(c); });
  const std::string columns =
      those_of(second, [&](char c) { return has(output, c) && !is_shared(c); });
  const std::string found = shared + rows + columns;
  arrange(a, first, shared + rows + inner);
  arrange(b, second, shared + inner + columns);
  std::vector<std::int64_t> extents(a.shape.begin(),
                                    a.shape.end() - static_cast<std::ptrdiff_t>(inner.size()));
  extents.insert(extents.end(), b.shape.end() - static_cast<std::ptrdiff_t>(columns.size()),
                 b.shape.end());
  join_last(a, inner.size());
  join_last(b, columns.size());
  std::vector<int> last = std::move(b.plain.dims.back());
  b.plain.dims.pop_back();
  join_last(b, inner.size());
  b.plain.dims.push_back(std::move(last));
  b.shape = shape_of(b.plain);
  if (!shared.empty()) {  // the rows are one dimension; those of a matrix are any
    std::vector<int> summed = std::move(a.plain.dims.back());
    a.plain.dims.pop_back();
    join_last(a, rows.size());
    a.plain.dims.push_back(std::move(summed));
    a.shape = shape_of(a.plain);
  }
  set_product(op, a, b);
  OnnxActivation value =
      as_plain(std::get<OnnxActivation>(*op.all().values.find(op.node().outputs[0])));
  if (!reshape_plain(value.plain, extents, op.all().fixed_batch))
    throw OnnxUnsupported("a product of " + onnx_shape_text(a.shape) + " and " +
                          onnx_shape_text(b.shape) + ", expected known extents");
  arrange(value, found, output);
  set_plain(op, std::move(value));
}

void translate_einsum(OnnxOperator& op) {
  std::vector<OnnxActivation> values;
  for (std::size_t i = 0; i < op.node().inputs.size(); ++i) values.push_back(plain_input(op, i));
  const Equation equation = equation_of(op, values);
  const auto& operands = equation.operands;
  if (values.size() == 1) {
    arrange(values[0], operands[0], equation.output);
    return set_plain(op, std::move(values[0]));
  }
  const bool sums =
      std::ranges::any_of(operands[0], [&](char letter) { return !has(equation.output, letter); });
  if (sums)
    return set_sum(op, std::move(values[0]), std::move(values[1]), operands[0], operands[1],
                   equation.output);
  for (std::size_t i = 0; i < 2; ++i) arrange(values[i], operands[i], equation.output);
  set_plain(op, combined(op, "multiply", std::move(values[0]), std::move(values[1])));
}

}  // namespace

std::vector<OnnxOperatorRow> onnx_einsum() { return {{"Einsum", translate_einsum}}; }

}  // namespace models
