// Comparison by name; values element by element only where bytes differ.
#include "io/checkpoint/compare_arrays.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <map>
#include <string_view>

namespace io {
namespace {

using Key = std::pair<Section, std::string>;

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

template <class T>
T load(const NamedArray& array, std::size_t i) {
  T value;
  std::memcpy(&value, array.data.data() + i * sizeof(T), sizeof(T));
  return value;
}

// Distance in representable numbers; -0 and +0 are 0 apart. `Bits` is the signed integer of T's size.
template <class T, class Bits>
double ulp_distance(T a, T b) {
  const auto ordered = [](T v) {
    const auto bits = std::bit_cast<Bits>(v);
    return bits < 0 ? static_cast<double>(std::numeric_limits<Bits>::min()) - static_cast<double>(bits)
                    : static_cast<double>(bits);
  };
  return std::abs(ordered(a) - ordered(b));
}

struct ValueReport {
  bool differs = false;
  double max_absolute = 0;
  std::int64_t max_ulp = -1, first_index = -1;
};

template <class T, class Bits>
ValueReport compare_floats(const NamedArray& a, const NamedArray& b, const CompareOptions& options) {
  ValueReport report;
  const bool tolerant = options.relative > 0 || options.absolute > 0 || options.ulp > 0;
  const std::size_t count = a.data.size() / sizeof(T);
  for (std::size_t i = 0; i < count; ++i) {
    const T x = load<T>(a, i), y = load<T>(b, i);
    if (std::bit_cast<Bits>(x) == std::bit_cast<Bits>(y)) continue;
    const double distance = std::abs(static_cast<double>(x) - static_cast<double>(y));
    const double ulp = std::isnan(distance) ? -1 : ulp_distance<T, Bits>(x, y);
    const bool equal = tolerant && ((std::isnan(x) && std::isnan(y)) ||
                                    (ulp >= 0 && options.ulp > 0 && ulp <= static_cast<double>(options.ulp)) ||
                                    ((options.relative > 0 || options.absolute > 0) &&
                                     distance <= options.absolute + options.relative * std::abs(static_cast<double>(y))));
    if (equal) continue;
    if (!report.differs) report.first_index = static_cast<std::int64_t>(i);
    report.differs = true;
    report.max_absolute =
        std::isnan(distance) || std::isnan(report.max_absolute) ? std::nan("") : std::max(report.max_absolute, distance);
    report.max_ulp = std::max(report.max_ulp, static_cast<std::int64_t>(std::min(ulp, 9e18)));
  }
  return report;
}

template <class T>
ValueReport compare_integers(const NamedArray& a, const NamedArray& b) {
  ValueReport report;
  for (std::size_t i = 0; i < a.data.size() / sizeof(T); ++i) {
    const T x = load<T>(a, i), y = load<T>(b, i);
    if (x == y) continue;
    if (!report.differs) report.first_index = static_cast<std::int64_t>(i);
    report.differs = true;
    report.max_absolute = std::max(report.max_absolute, std::abs(static_cast<double>(x) - static_cast<double>(y)));
  }
  return report;
}

ValueReport compare_values(const NamedArray& a, const NamedArray& b, const CompareOptions& options) {
  if (a.data == b.data) return {};
  switch (a.type) {
    case ArrayType::kF32:
      return compare_floats<float, std::int32_t>(a, b, options);
    case ArrayType::kF64:
      return compare_floats<double, std::int64_t>(a, b, options);
    case ArrayType::kI64:
      return compare_integers<std::int64_t>(a, b);
    case ArrayType::kI32:
      return compare_integers<std::int32_t>(a, b);
    case ArrayType::kU8:
      return compare_integers<std::uint8_t>(a, b);
    case ArrayType::kF16:
    case ArrayType::kBf16:
      return compare_integers<std::uint16_t>(a, b);  // bits only
  }
  return {};
}

std::string mismatch(const NamedArray* a, const NamedArray* b) {
  if (a == nullptr || b == nullptr) return a == b ? "" : "missing";
  if (a->type != b->type) return "type";
  if (a->shape != b->shape) return "shape";
  return "";
}

bool selected(const NamedArray& array, const CompareOptions& options) {
  return std::find(options.sections.begin(), options.sections.end(), array.section) != options.sections.end() &&
         std::none_of(options.ignore.begin(), options.ignore.end(),
                      [&](const std::string& g) { return glob_matches(g, array.name); });
}

// Files are put into classes of equal content by comparing with one member of each class.
std::vector<int> minority_of(const std::vector<const NamedArray*>& columns, const CompareOptions& options) {
  std::vector<std::vector<int>> classes;
  for (std::size_t f = 0; f < columns.size(); ++f) {
    const auto same = std::find_if(classes.begin(), classes.end(), [&](const std::vector<int>& members) {
      const NamedArray* other = columns[static_cast<std::size_t>(members.front())];
      if (!mismatch(columns[f], other).empty()) return false;
      return columns[f] == nullptr || !compare_values(*other, *columns[f], options).differs;
    });
    if (same == classes.end()) {
      classes.push_back({static_cast<int>(f)});
    } else {
      same->push_back(static_cast<int>(f));
    }
  }
  const auto largest =
      std::max_element(classes.begin(), classes.end(), [](const auto& a, const auto& b) { return a.size() < b.size(); });
  std::vector<int> minority;
  for (auto c = classes.begin(); c != classes.end(); ++c)
    if (c != largest) minority.insert(minority.end(), c->begin(), c->end());
  std::sort(minority.begin(), minority.end());
  return minority;
}

}  // namespace

Comparison compare_arrays(const std::vector<const std::vector<NamedArray>*>& files, const CompareOptions& options) {
  std::map<Key, std::vector<const NamedArray*>> rows;
  std::vector<const Key*> order;
  for (std::size_t f = 0; f < files.size(); ++f)
    for (const NamedArray& array : *files[f]) {
      if (!selected(array, options)) continue;
      const auto [row, fresh] = rows.try_emplace({array.section, array.name}, files.size(), nullptr);
      if (fresh) order.push_back(&row->first);
      row->second[f] = &array;
    }
  Comparison result;
  for (const Key* key : order) {
    const auto& columns = rows.find(*key)->second;
    ++result.compared;
    const NamedArray* reference = *std::find_if(columns.begin(), columns.end(), [](const NamedArray* a) { return a != nullptr; });
    ArrayDifference d{.name = key->second,
                      .section = key->first,
                      .type = to_string(reference->type),
                      .shape = shape_text(reference->shape),
                      .reason = {},
                      .minority = {}};
    for (std::size_t f = 1; f < columns.size(); ++f) {
      if (std::string why = mismatch(columns[0], columns[f]); !why.empty()) {
        if (d.reason.empty()) d.reason = std::move(why);
        continue;
      }
      if (columns[f] == nullptr) continue;
      const ValueReport values = compare_values(*columns[0], *columns[f], options);
      if (!values.differs) continue;
      if (d.reason.empty()) d.reason = "values";
      d.max_absolute = std::isnan(values.max_absolute) ? values.max_absolute : std::max(d.max_absolute, values.max_absolute);
      d.max_ulp = std::max(d.max_ulp, values.max_ulp);
      if (d.first_index < 0 || values.first_index < d.first_index) d.first_index = values.first_index;
    }
    if (d.reason.empty()) continue;
    d.minority = minority_of(columns, options);
    result.differences.push_back(std::move(d));
  }
  return result;
}

bool is_running_statistic(const std::string& name) { return name.ends_with("running_mean") || name.ends_with("running_var"); }

bool glob_matches(std::string_view pattern, std::string_view text) {
  std::size_t p = 0, t = 0, star = std::string_view::npos, mark = 0;
  while (t < text.size()) {
    if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t]) && pattern[p] != '*') {
      ++p, ++t;
    } else if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      mark = t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++mark;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

}  // namespace io
