// Matches tensors by name, then compares the files block by block.
#include "io/interchange/compare_arrays.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include "io/base/finite.h"
#include "io/interchange/array_files.h"

namespace io {
namespace {

constexpr std::size_t kCompareBlock =
    1 << 18;  // stays in a core's cache while it is compared; a multiple of every element's size
constexpr std::size_t kNone = ~std::size_t{0};

using Key = std::pair<Section, std::string>;
using Columns = std::vector<std::size_t>;  // for each file its array, or kNone

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

std::string plain(std::string name, const CompareOptions& options) {
  for (const std::string& prefix : options.strip_prefix)
    if (name.starts_with(prefix) && name.size() > prefix.size()) name.erase(0, prefix.size());
  for (const auto& [from, to] : options.rename)
    if (name.starts_with(from) &&
        (name.size() == from.size() || from.ends_with('.') || name[from.size()] == '.'))
      return to + name.substr(from.size());
  return name;
}

bool selected(const Key& key, const CompareOptions& options) {
  return std::find(options.sections.begin(), options.sections.end(), key.first) !=
             options.sections.end() &&
         std::none_of(options.ignore.begin(), options.ignore.end(),
                      [&](const std::string& glob) { return glob_matches(glob, key.second); });
}

class Table {  // which array of which file bears which name
 public:
  Table(const std::vector<ArraySource*>& files, const CompareOptions& options)
      : files_(files), options_(options) {
    std::vector<std::size_t> order(files.size());
    for (std::size_t f = 0; f < files.size(); ++f) order[f] = f;
    // Checkpoints first: they know sections and model order.
    const auto rank = [&](std::size_t f) {
      return files[f]->has_sections() ? 0 : files[f]->in_model_order() ? 1 : 2;
    };
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return rank(a) < rank(b); });
    for (const std::size_t f : order) add(f);
  }

  const std::vector<std::pair<const Key*, const Columns*>>& rows() const { return order_; }

 private:
  void add(std::size_t f) {
    for (std::size_t i = 0; i < files_[f]->entries().size(); ++i) {
      const ArrayEntry& entry = files_[f]->entries()[i];
      Key key{entry.section, plain(entry.name, options_)};
      if (!files_[f]->has_sections()) key.first = guess(key.second);
      if (!selected(key, options_)) continue;
      const auto [row, fresh] = rows_.try_emplace(std::move(key), files_.size(), kNone);
      if (fresh) order_.emplace_back(&row->first, &row->second);
      if (row->second[f] != kNone)
        throw DataError(files_[f]->name() + ": '" + files_[f]->entries()[row->second[f]].name +
                        "' and '" + entry.name + "' both become '" + row->first.second + "'");
      row->second[f] = i;
    }
  }
  Section guess(const std::string& name) const {
    for (const Section section : {Section::kParameter, Section::kBuffer})
      if (rows_.contains({section, name})) return section;
    return section_of_name(name);
  }

  const std::vector<ArraySource*>& files_;
  const CompareOptions& options_;
  std::map<Key, Columns> rows_;
  std::vector<std::pair<const Key*, const Columns*>> order_;
};

bool is_finite(DType type, std::span<const std::byte> block) {
  return base::first_not_finite(type, block.data(), block.size() / size_of(type)) < 0;
}

class RowComparer {
 public:
  RowComparer(const std::vector<ArraySource*>& files, const CompareOptions& options)
      : files_(files), options_(options), one_(kCompareBlock), other_(kCompareBlock) {}

  // Adds to `result` what row `columns` shows.
  void compare(const Key& key, const Columns& columns, Comparison& result) {
    std::vector<std::size_t> all;
    for (std::size_t f = 1; f < files_.size(); ++f) all.push_back(f);
    not_finite_.assign(files_.size(), false);
    const auto [same, differing] = split(columns, 0, all);
    note_not_finite(key, result);
    if (differing.empty()) return;
    const std::size_t holder =
        static_cast<std::size_t>(std::find_if(columns.begin(), columns.end(),
                                              [](std::size_t column) { return column != kNone; }) -
                                 columns.begin());
    const ArrayEntry& entry = files_[holder]->entries()[columns[holder]];
    ArrayDifference d{
        .name = key.second,
        .section = key.first,
        .type = std::string(entry.stored_as.empty() ? to_string(entry.type) : entry.stored_as),
        .shape = shape_text(entry.shape),
        .reason = mismatch(columns, 0, differing.front()),
        .values = reports_.front(),
        .minority = {}};
    if (d.reason.empty()) d.reason = "values";
    for (std::size_t i = 1; i < reports_.size(); ++i) merge(reports_[i], d.values);
    d.minority = minority(columns, same, differing);
    result.differences.push_back(std::move(d));
  }

 private:
  using Files = std::vector<std::size_t>;

  void note_not_finite(const Key& key, Comparison& result) const {
    NotFinite found{.name = key.second, .files = {}};
    for (std::size_t f = 0; f < files_.size(); ++f)
      if (not_finite_[f]) found.files.push_back(static_cast<int>(f));
    if (!found.files.empty()) result.not_finite.push_back(std::move(found));
  }

  static void merge(const ValueReport& from, ValueReport& into) {
    if (!from.differs) return;
    into.max_absolute = std::isnan(from.max_absolute) || std::isnan(into.max_absolute)
                            ? std::nan("")
                            : std::max(into.max_absolute, from.max_absolute);
    into.max_ulp = std::max(into.max_ulp, from.max_ulp);
    if (!into.differs || from.first_index < into.first_index) into.first_index = from.first_index;
    into.differs = true;
  }

  // Why the two cannot even be compared; "" when they can.
  std::string mismatch(const Columns& columns, std::size_t a, std::size_t b) const {
    if (columns[a] == kNone || columns[b] == kNone)
      return columns[a] == columns[b] ? "" : "missing";
    const ArrayEntry &x = files_[a]->entries()[columns[a]], &y = files_[b]->entries()[columns[b]];
    if (x.type != y.type || x.stored_as != y.stored_as) return "type";
    return x.shape != y.shape ? "shape" : "";
  }

  // Which of `others` equal file `one`, and which do not; reports_ says how the latter differ, in
  // their order.
  std::pair<Files, Files> split(const Columns& columns, std::size_t one, const Files& others) {
    Files open, same, differing;
    std::vector<ValueReport> reports(files_.size());
    for (const std::size_t f : others)
      if (mismatch(columns, one, f).empty()) open.push_back(f);
    if (columns[one] != kNone && !open.empty()) compare_blocks(columns, one, open, reports);
    reports_.clear();
    for (const std::size_t f : others) {
      const bool equal = mismatch(columns, one, f).empty() && !reports[f].differs;
      (equal ? same : differing).push_back(f);
      if (!equal) reports_.push_back(reports[f]);
    }
    return {same, differing};
  }

  // A block that equals the other's is finite where that is.
  void compare_blocks(const Columns& columns, std::size_t one, const Files& others,
                      std::vector<ValueReport>& reports) {
    const ArrayEntry& entry = files_[one]->entries()[columns[one]];
    for (std::uint64_t at = 0; at < entry.bytes; at += kCompareBlock) {
      const std::size_t part = std::min<std::uint64_t>(kCompareBlock, entry.bytes - at);
      const auto a = std::span(one_).first(part), b = std::span(other_).first(part);
      files_[one]->read(columns[one], at, a);
      const bool finite = is_finite(entry.type, a);
      if (!finite) not_finite_[one] = true;
      for (const std::size_t f : others) {
        files_[f]->read(columns[f], at, b);
        const bool equal = std::memcmp(a.data(), b.data(), part) == 0;
        if (!(equal ? finite : is_finite(entry.type, b))) not_finite_[f] = true;
        if (!equal)
          compare_values(entry.type, a, b, static_cast<std::int64_t>(at / size_of(entry.type)),
                         options_.tolerance, reports[f]);
      }
    }
  }

  // The files outside the largest class of equal ones; `first` are those that equal file 0.
  std::vector<int> minority(const Columns& columns, const Files& first, Files left) {
    std::vector<Files> classes{{0}};
    classes[0].insert(classes[0].end(), first.begin(), first.end());
    while (!left.empty()) {
      const std::size_t one = left.front();
      left.erase(left.begin());
      auto [same, differing] = split(columns, one, left);
      same.insert(same.begin(), one);
      classes.push_back(std::move(same));
      left = std::move(differing);
    }
    const auto largest =
        std::max_element(classes.begin(), classes.end(),
                         [](const Files& a, const Files& b) { return a.size() < b.size(); });
    std::vector<int> files;
    for (auto c = classes.begin(); c != classes.end(); ++c)
      if (c != largest)
        for (const std::size_t f : *c) files.push_back(static_cast<int>(f));
    std::sort(files.begin(), files.end());
    return files;
  }

  const std::vector<ArraySource*>& files_;
  const CompareOptions& options_;
  std::vector<std::byte> one_, other_;
  std::vector<ValueReport> reports_;
  std::vector<bool> not_finite_;  // by file, of the row under way
};

}  // namespace

Comparison compare_arrays(const std::vector<ArraySource*>& files, const CompareOptions& options) {
  const Table table(files, options);
  RowComparer rows(files, options);
  Comparison result;
  for (const auto& [key, columns] : table.rows()) {
    ++result.compared;
    rows.compare(*key, *columns, result);
  }
  for (ArraySource* file : files) file->finish();
  return result;
}

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
