// Implements the checks of a header, and the sizes of digested blocks.
#include "io/checkpoint/checkpoint_format.h"

#include <algorithm>
#include <bitset>
#include <set>
#include <tuple>

#include "io/base/text/utf8.h"

namespace io {

namespace format {
namespace {

void check_text(const std::string& text, const char* what, const std::string& file,
                std::size_t longest) {
  if (text.size() > longest)
    throw DataError(file + ": " + what + " of " + std::to_string(text.size()) + " bytes; at most " +
                    std::to_string(longest));
  if (!base::is_utf8(text)) throw DataError(file + ": " + what + " is not UTF-8");
}

void check_progress(const Checkpoint& c, const std::string& file) {
  for (const auto& [what, value] : {std::pair{"step", c.global_step}, std::pair{"epoch", c.epoch},
                                    std::pair{"step in the epoch", c.step_in_epoch},
                                    std::pair{"number of samples", c.samples_seen}})
    if (value < 0)
      throw DataError(file + ": " + what + " " + std::to_string(value) + " is negative");
  if (c.world_size < 1)
    throw DataError(file + ": world size " + std::to_string(c.world_size) + " is below 1");
  check_text(c.model, "model name", file, kLongestName);
  check_text(c.dataset, "data set name", file, kLongestName);
  check_text(c.build, "build name", file, kLongestName);
  check_text(c.config, "configuration", file, kLargestHeader);
  for (const auto& [name, value] : c.counters) check_text(name, "counter name", file, kLongestName);
  for (const SaveRecord& record : c.history)
    check_text(record.build, "build name", file, kLongestName);
  if (c.vocabulary.size() > kLargestVocabulary)
    throw DataError(file + ": a vocabulary of " + std::to_string(c.vocabulary.size()) +
                    " characters; at most " + std::to_string(kLargestVocabulary));
  std::bitset<256> seen;
  for (const char c8 : c.vocabulary) {
    const auto code = static_cast<unsigned char>(c8);
    if (seen[code])
      throw DataError(file + ": byte " + std::to_string(code) + " occurs twice in the vocabulary");
    seen[code] = true;
  }
}

// Returns 0 if there are no rows, or if the shape is not yet checked and invalid.
std::uint64_t row_bytes_of(const std::vector<std::int64_t>& shape, std::uint64_t bytes) {
  if (shape.empty()) return bytes;
  return shape.front() < 1 ? 0 : bytes / static_cast<std::uint64_t>(shape.front());
}

void check_blocks(const NamedArray& array, const Placement& placement, const std::string& what) {
  const std::uint64_t row = row_bytes_of(array.shape, placement.bytes),
                      block = placement.block_bytes;
  const bool whole_rows = row == 0 || block % row == 0;
  if (block == 0 || !whole_rows || (block < kMinDigestBlock && block < placement.bytes))
    throw DataError(what + " has digest blocks of " + std::to_string(block) +
                    " bytes; expected whole rows of " + std::to_string(row) + " bytes, at least " +
                    std::to_string(kMinDigestBlock) + " or the whole array");
}

// A code is never reused for another type.
constexpr std::pair<DType, std::uint8_t> kTypeCodes[] = {
    {DType::kF32, 1}, {DType::kF64, 2}, {DType::kI64, 3}, {DType::kU8, 4},
    {DType::kI32, 5}, {DType::kF16, 6}, {DType::kBF16, 7}};

}  // namespace

std::uint8_t type_code(DType type) {
  for (const auto& [known, code] : kTypeCodes)
    if (known == type) return code;
  throw Error("internal: no file holds " + std::string(to_string(type)));
}

DType type_of_code(std::uint8_t code, const std::string& file) {
  for (const auto& [type, known] : kTypeCodes)
    if (known == code) return type;
  throw DataError(file + ": unknown array type " + std::to_string(code));
}

std::uint64_t array_bytes(const std::vector<std::int64_t>& shape, DType type,
                          const std::string& what) {
  if (shape.size() > kHighestRank)
    throw DataError(what + " has " + std::to_string(shape.size()) + " dimensions; at most " +
                    std::to_string(kHighestRank));
  std::uint64_t bytes = size_of(type);
  for (const std::int64_t size : shape) {
    if (size < 0) throw DataError(what + " has a negative dimension: " + std::to_string(size));
    if (__builtin_mul_overflow(bytes, static_cast<std::uint64_t>(size), &bytes))
      throw DataError(what + " has an invalid size");
  }
  return bytes;
}

std::uint64_t digest_block_bytes(const std::vector<std::int64_t>& shape, std::uint64_t bytes) {
  constexpr std::uint64_t kTarget = 512 << 10, kMax = 2 << 20;
  constexpr std::uint64_t kRowsPerLoad = 32;  // rows of a transposed matrix: whole cache lines
  const std::uint64_t row = row_bytes_of(shape, bytes);
  if (row == 0) return 1;
  const std::uint64_t rows = (kTarget / row + kRowsPerLoad) / kRowsPerLoad * kRowsPerLoad;
  return std::max<std::uint64_t>(1, std::min(rows, kMax / row)) * row;
}

void check_header(const Checkpoint& checkpoint, const std::vector<Placement>& placements,
                  const std::string& file) {
  check_progress(checkpoint, file);
  std::set<std::pair<Section, std::string_view>> seen;
  std::uint64_t expected_offset = 0;
  for (std::size_t i = 0; i < checkpoint.arrays.size(); ++i) {
    const NamedArray& array = checkpoint.arrays[i];
    const Placement& placement = placements[i];
    check_text(array.name, "array name", file, kLongestName);
    const std::string what = file + ": " + to_string(array.section) + " '" + array.name + "'";
    if (array.name.empty()) throw DataError(file + ": an array has no name");
    check_text(array.device, "device name", file, kLongestName);
    if (!seen.emplace(array.section, array.name).second) throw DataError(what + " occurs twice");
    const std::uint64_t bytes = array_bytes(array.shape, array.type, what);
    if (bytes != placement.bytes)
      throw DataError(what + " has " + std::to_string(placement.bytes) +
                      " bytes; its shape and type take " + std::to_string(bytes));
    if (placement.offset != expected_offset)
      throw DataError(what + " begins at " + std::to_string(placement.offset) + "; expected " +
                      std::to_string(expected_offset) + ", where the one before ends");
    if (__builtin_add_overflow(expected_offset, bytes, &expected_offset))
      throw DataError(what + " has an invalid offset");
    check_blocks(array, placement, what);
  }
}

}  // namespace format
}  // namespace io
