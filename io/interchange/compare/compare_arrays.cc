// Matches tensors by name, then compares the files block by block.
#include "io/interchange/compare/compare_arrays.h"

#include <algorithm>
#include <map>

#include "io/base/text/text_parts.h"
#include "io/interchange/array_files.h"
#include "io/interchange/compare/compare_blocks.h"

namespace io {
namespace {

using Key = std::pair<Section, std::string>;

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

class Table {  // maps names to arrays of each file
 public:
  Table(const std::vector<ArraySource*>& files, const CompareOptions& options)
      : files_(files), options_(options) {
    std::vector<std::size_t> order(files.size());
    for (std::size_t f = 0; f < files.size(); ++f) order[f] = f;
    // Checkpoints come first: they have sections and model order.
    const auto rank = [&](std::size_t f) {
      return files[f]->has_sections() ? 0 : files[f]->in_model_order() ? 1 : 2;
    };
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return rank(a) < rank(b); });
    for (const std::size_t f : order) check_unread(*files[f]);
    for (const std::size_t f : order) add(f);
  }

  const std::vector<std::pair<const Key*, const Columns*>>& rows() const { return order_; }

 private:
  // Throws if an array to be compared has an unsupported type.
  void check_unread(const ArraySource& file) const {
    for (const UnreadArray& array : file.unread()) {
      const std::string name = plain(array.name, options_);
      if (selected({section_of_name(name), name}, options_))
        throw DataError(file.name() + ": '" + array.name + "' has dtype " + array.type +
                        ", which is not read; leave it out with --ignore '" + array.name + "'");
    }
  }
  void add(std::size_t f) {
    for (std::size_t i = 0; i < files_[f]->entries().size(); ++i) {
      const ArrayEntry& entry = files_[f]->entries()[i];
      Key key{entry.section, plain(entry.name, options_)};
      if (!files_[f]->has_sections()) key.first = guess(key.second);
      if (!selected(key, options_)) continue;
      const auto [row, is_new] = rows_.try_emplace(std::move(key), files_.size(), kNoColumn);
      if (is_new) order_.emplace_back(&row->first, &row->second);
      if (row->second[f] != kNoColumn)
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

class RowComparer {
 public:
  RowComparer(const std::vector<ArraySource*>& files, const CompareOptions& options)
      : files_(files), blocks_(files, options.tolerance) {}

  // Returns the other files whose array can be compared with file 0's.
  FileList comparable(const Columns& columns) const {
    FileList open;
    for (std::size_t f = 1; f < files_.size() && columns[0] != kNoColumn; ++f)
      if (mismatch(columns, 0, f).empty()) open.push_back(f);
    return open;
  }

  // Adds the differences of a row to `result`.
  void compare(const Key& key, const ComparedRow& row, Comparison& result) {
    const Columns& columns = *row.columns;
    note_not_finite(key, row.report, result);
    FileList all;
    for (std::size_t f = 1; f < files_.size(); ++f) all.push_back(f);
    const auto [same, differing] = split(columns, 0, all, row.report);
    if (differing.empty()) return;
    const std::size_t holder = static_cast<std::size_t>(
        std::find_if(columns.begin(), columns.end(),
                     [](std::size_t column) { return column != kNoColumn; }) -
        columns.begin());
    const ArrayEntry& entry = files_[holder]->entries()[columns[holder]];
    ArrayDifference d{
        .name = key.second,
        .section = key.first,
        .type = std::string(entry.stored_as.empty() ? to_string(entry.type) : entry.stored_as),
        .shape = base::shape_text(entry.shape),
        .reason = mismatch(columns, 0, differing.front()),
        .values = row.report.values[differing.front()],
        .minority = {}};
    if (d.reason.empty()) d.reason = "values";
    for (const std::size_t f : differing) merge(row.report.values[f], d.values);
    d.minority = minority(columns, same, differing);
    result.differences.push_back(std::move(d));
  }

 private:
  // Constants come with the model, e.g. the -inf of a mask: they are no sign of divergence. Files
  // without sections do not tell them from parameters of that name.
  bool is_constant(const Key& key) const {
    const bool may_be_buffer =
        key.first == Section::kBuffer ||
        std::ranges::none_of(files_, [](const ArraySource* file) { return file->has_sections(); });
    return may_be_buffer && key.second.ends_with(".value");
  }
  void note_not_finite(const Key& key, const BlockReport& report, Comparison& result) const {
    if (is_constant(key)) return;
    NotFinite found{.name = key.second, .files = {}};
    for (std::size_t f = 0; f < files_.size(); ++f)
      if (report.not_finite[f]) found.files.push_back(static_cast<int>(f));
    if (!found.files.empty()) result.not_finite.push_back(std::move(found));
  }

  // Returns why the two cannot be compared; "" if they can.
  std::string mismatch(const Columns& columns, std::size_t a, std::size_t b) const {
    if (columns[a] == kNoColumn || columns[b] == kNoColumn)
      return columns[a] == columns[b] ? "" : "missing";
    const ArrayEntry &x = files_[a]->entries()[columns[a]], &y = files_[b]->entries()[columns[b]];
    if (x.type != y.type || x.stored_as != y.stored_as) return "type";
    return x.shape != y.shape ? "shape" : "";
  }

  // Divides `others` into those that equal file `one` and those that do not. `report` is that of
  // their comparison.
  std::pair<FileList, FileList> split(const Columns& columns, std::size_t one,
                                      const FileList& others, const BlockReport& report) const {
    FileList same, differing;
    for (const std::size_t f : others)
      (mismatch(columns, one, f).empty() && !report.values[f].differs ? same : differing)
          .push_back(f);
    return {same, differing};
  }

  BlockReport look(const Columns& columns, std::size_t one, const FileList& others) {
    BlockReport report{.values = std::vector<ValueReport>(files_.size()),
                       .not_finite = std::vector<char>(files_.size())};
    FileList open;
    for (const std::size_t f : others)
      if (mismatch(columns, one, f).empty()) open.push_back(f);
    if (columns[one] != kNoColumn && !open.empty())
      blocks_.compare(columns, one, open, 0, files_[one]->entries()[columns[one]].bytes, report);
    return report;
  }

  // Returns the files outside the largest class of equal ones; `first` are those that equal file 0.
  std::vector<int> minority(const Columns& columns, const FileList& first, FileList left) {
    std::vector<FileList> classes{{0}};
    classes[0].insert(classes[0].end(), first.begin(), first.end());
    while (!left.empty()) {
      const std::size_t one = left.front();
      left.erase(left.begin());
      auto [same, differing] = split(columns, one, left, look(columns, one, left));
      same.insert(same.begin(), one);
      classes.push_back(std::move(same));
      left = std::move(differing);
    }
    const auto largest =
        std::max_element(classes.begin(), classes.end(),
                         [](const FileList& a, const FileList& b) { return a.size() < b.size(); });
    std::vector<int> files;
    for (auto c = classes.begin(); c != classes.end(); ++c)
      if (c != largest)
        for (const std::size_t f : *c) files.push_back(static_cast<int>(f));
    std::sort(files.begin(), files.end());
    return files;
  }

  const std::vector<ArraySource*>& files_;
  BlockComparer blocks_;
};

}  // namespace

Comparison compare_arrays(const std::vector<ArraySource*>& files, const CompareOptions& options) {
  const Table table(files, options);
  RowComparer comparer(files, options);
  std::vector<ComparedRow> rows;
  for (const auto& [key, columns] : table.rows())
    rows.push_back({columns, comparer.comparable(*columns), {}});
  compare_rows(files, options.tolerance, rows);
  Comparison result;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    ++result.compared;
    comparer.compare(*table.rows()[r].first, rows[r], result);
  }
  finish_all(files);
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
