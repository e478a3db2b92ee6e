// Named arrays of a file of any format, read block by block, so that files may be larger than
// memory.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/checkpoint/byte_source.h"
#include "io/checkpoint/checkpoint.h"

namespace io {

struct ArrayEntry {
  std::string name;
  Section section = Section::kParameter;
  DType type = DType::kF32;
  std::vector<std::int64_t> shape;
  std::uint64_t bytes = 0;  // shape times type
  // What the file calls the type where there is no such DType, and `type` is one that holds its
  // numbers: "i16", "bool". Arrays that differ in this differ in their types.
  std::string_view stored_as{};
  // The file is checked by blocks of so many bytes: cheapest if one thread reads a block from front
  // to back.
  std::optional<std::uint64_t> block_bytes{};
};

// An array of a type that is not read: truth values, 16-bit numbers, text. No model here has one.
struct UnreadArray {
  std::string name, type;  // as the file calls it: "BOOL", "<U5"
};

// One thread at a time, except as many_readers() says.
class ArraySource {
 public:
  virtual ~ArraySource() = default;

  const std::string& name() const { return bytes_->name(); }  // the file
  std::uint64_t file_bytes() const { return bytes_->size(); }
  const std::vector<ArrayEntry>& entries() const { return entries_; }
  // What else the file holds; not among the entries.
  const std::vector<UnreadArray>& unread() const { return unread_; }
  // Whether the file says what is a parameter and what a buffer, and keeps them in model order.
  virtual bool has_sections() const { return false; }
  virtual bool in_model_order() const { return true; }
  // Whether several threads may call read() at the same time.
  virtual bool many_readers() const { return false; }

  // Throws DataError if so many bytes of arrays are more than a file of this size may need in
  // memory (open_file.h); only compressed ones can.
  void check_unpacked(std::uint64_t bytes) const;

  // Bytes of array `index` from `offset` on, row-major and little-endian. Fast when read front to
  // back in the order of the entries. REQUIRES: within the array. Throws DataError for damage that
  // shows, Error when the medium fails.
  virtual void read(std::size_t index, std::uint64_t offset, std::span<std::byte> target) = 0;
  // To be called after the last read: reads what no read() has touched and holds the file against
  // its digests and sums. Throws DataError.
  virtual void finish() = 0;

 protected:
  explicit ArraySource(std::unique_ptr<ByteSource> bytes) : bytes_(std::move(bytes)) {}

  std::unique_ptr<ByteSource> bytes_;
  std::vector<ArrayEntry> entries_;
  std::vector<UnreadArray> unread_;
};

// All arrays in memory, and the file checked to its end. Throws DataError before anything is
// unpacked where they are too large for that (check_unpacked()).
std::vector<NamedArray> read_arrays(ArraySource& source);

// The arrays of a checkpoint. Reads and checks the header. Throws DataError.
std::unique_ptr<ArraySource> open_checkpoint_arrays(std::unique_ptr<ByteSource> bytes);
bool is_checkpoint(const ByteSource& bytes);  // by its first bytes

}  // namespace io
