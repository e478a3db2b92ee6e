// Each thread reads its part of all files by itself, into memory that stays in its core's cache:
// to hand over a block costs more than to read it.
#include "io/interchange/compare/compare_blocks.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <mutex>
#include <span>

#include "io/base/machine/cpu_affinity.h"
#include "io/base/numbers/finite.h"
#include "io/base/threads/parallel_for.h"

namespace io {
namespace {

constexpr std::size_t kCompareBlock =
    1 << 18;  // stays in a core's cache during the comparison; a multiple of every element size
constexpr std::uint64_t kTaskBytes = 8 * kCompareBlock;  // bytes of one file, per thread at a time
constexpr std::size_t kMaxTasksAhead = 16;  // limits the data that digests wait for to a few
                                            // megabytes
constexpr std::uint64_t kBytesOfWorker = std::uint64_t{1} << 24;  // minimum bytes per worker
constexpr std::size_t kMaxWorkers = 8;

bool is_finite(DType type, std::span<const std::byte> block) {
  return base::first_not_finite(type, block.data(), block.size() / size_of(type)) < 0;
}

struct Stretch {
  std::size_t row;
  std::uint64_t from, to;
};
using Task = std::vector<Stretch>;

std::uint64_t bytes_of(const std::vector<ArraySource*>& files, const ComparedRow& row) {
  return row.others.empty() ? 0 : files[0]->entries()[row.columns->front()].bytes;
}

std::vector<Task> tasks_of(const std::vector<ArraySource*>& files,
                           const std::vector<ComparedRow>& rows) {
  std::vector<Task> tasks;
  std::uint64_t room = 0;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const std::uint64_t bytes = bytes_of(files, rows[r]);
    if (bytes == 0) continue;
    const std::uint64_t block =
        files[0]->entries()[rows[r].columns->front()].block_bytes.value_or(kCompareBlock);
    for (std::uint64_t at = 0; at < bytes;) {
      if (room == 0) {
        tasks.emplace_back();
        room = kTaskBytes;
      }
      // Blocks are aligned in the array, regardless of what precedes it.
      const std::uint64_t part = std::min(bytes - at, std::max(room / block * block, block));
      tasks.back().push_back({r, at, at + part});
      at += part;
      room -= std::min(room, part);
    }
  }
  return tasks;
}

std::size_t workers_for(std::uint64_t bytes) {
  return std::min({static_cast<std::size_t>(bytes / kBytesOfWorker) + 1,
                   static_cast<std::size_t>(base::count_of_cpus()), kMaxWorkers});
}

std::size_t workers_for(const std::vector<ArraySource*>& files,
                        const std::vector<ComparedRow>& rows) {
  const auto one_reader = [](const ArraySource* file) { return !file->many_readers(); };
  if (std::any_of(files.begin(), files.end(), one_reader)) return 1;
  std::uint64_t bytes = 0;
  for (const ComparedRow& row : rows) bytes += bytes_of(files, row) * (row.others.size() + 1);
  return workers_for(bytes);
}

void merge(const BlockReport& from, BlockReport& into) {
  for (std::size_t f = 0; f < from.values.size(); ++f) {
    io::merge(from.values[f], into.values[f]);
    into.not_finite[f] = into.not_finite[f] | from.not_finite[f];
  }
}

}  // namespace

void merge(const ValueReport& from, ValueReport& into) {
  if (!from.differs) return;
  into.max_absolute = std::isnan(from.max_absolute) || std::isnan(into.max_absolute)
                          ? std::nan("")
                          : std::max(into.max_absolute, from.max_absolute);
  into.max_ulp = std::max(into.max_ulp, from.max_ulp);
  if (!into.differs || from.first_index < into.first_index) into.first_index = from.first_index;
  into.differs = true;
}

BlockComparer::BlockComparer(const std::vector<ArraySource*>& files, const Tolerance& tolerance)
    : files_(files), tolerance_(tolerance), one_(kCompareBlock), other_(kCompareBlock) {}

// Most blocks are equal and finite, which a single pass detects.
void BlockComparer::compare(const Columns& columns, std::size_t one, const FileList& others,
                            std::uint64_t from, std::uint64_t to, BlockReport& report) {
  const DType type = files_[one]->entries()[columns[one]].type;
  for (std::uint64_t at = from; at < to; at += kCompareBlock) {
    const std::size_t part = std::min<std::uint64_t>(kCompareBlock, to - at);
    const auto a = std::span(one_).first(part), b = std::span(other_).first(part);
    files_[one]->read(columns[one], at, a);
    bool seen = false;  // it is known to be finite
    for (const std::size_t f : others) {
      files_[f]->read(columns[f], at, b);
      if (base::equal_and_finite(type, a.data(), b.data(), part / size_of(type))) {
        seen = true;
        continue;
      }
      if (!is_finite(type, b)) report.not_finite[f] = true;
      if (std::memcmp(a.data(), b.data(), part) == 0) continue;
      compare_values(type, a, b, static_cast<std::int64_t>(at / size_of(type)), tolerance_,
                     report.values[f]);
    }
    if (!seen && !is_finite(type, a)) report.not_finite[one] = true;
  }
}

void compare_rows(const std::vector<ArraySource*>& files, const Tolerance& tolerance,
                  std::vector<ComparedRow>& rows) {
  const BlockReport none{.values = std::vector<ValueReport>(files.size()),
                         .not_finite = std::vector<char>(files.size())};
  for (ComparedRow& row : rows) row.report = none;
  const std::vector<Task> tasks = tasks_of(files, rows);
  const std::size_t workers = workers_for(files, rows);
  std::vector<BlockComparer> comparers(workers, BlockComparer(files, tolerance));
  std::mutex mutex;  // guards the rows' reports
  base::parallel_for(tasks.size(), workers, kMaxTasksAhead, [&](std::size_t w, std::size_t task) {
    for (const auto& [r, from, to] : tasks[task]) {
      BlockReport found = none;
      comparers[w].compare(*rows[r].columns, 0, rows[r].others, from, to, found);
      const std::lock_guard lock(mutex);
      merge(found, rows[r].report);
    }
  });
}

void finish_all(const std::vector<ArraySource*>& files) {
  std::uint64_t bytes = 0;
  for (const ArraySource* file : files) bytes += file->file_bytes();
  base::parallel_for(files.size(), workers_for(bytes), files.size(),
                     [&](std::size_t, std::size_t f) { files[f]->finish(); });
}

}  // namespace io
