// Reads the named arrays of a file of any format block by block, so that files may be larger than
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
  std::uint64_t bytes = 0;  // product of shape and element size
  // The file's name for the type, e.g. "i16" or "bool", if there is no such DType; `type` is then
  // one that can represent its values. Arrays that differ in this differ in their types.
  std::string_view stored_as{};
  // The file is checked in blocks of this size: it is most efficient if one thread reads a block
  // sequentially.
  std::optional<std::uint64_t> block_bytes{};
};

// An array of an unsupported type: booleans, 16-bit integers, text. No model here has one.
struct UnreadArray {
  std::string name, type;  // the file's name for the type: "BOOL", "<U5"
};

// For one thread at a time, except as many_readers() states.
class ArraySource {
 public:
  virtual ~ArraySource() = default;

  const std::string& name() const { return bytes_->name(); }  // name of the file
  std::uint64_t file_bytes() const { return bytes_->size(); }
  const std::vector<ArrayEntry>& entries() const { return entries_; }
  // The other arrays of the file, which are not among the entries.
  const std::vector<UnreadArray>& unread() const { return unread_; }
  // Returns true if the file distinguishes parameters and buffers, and stores them in model order.
  virtual bool has_sections() const { return false; }
  virtual bool in_model_order() const { return true; }
  // Returns true if several threads may call read() at the same time.
  virtual bool many_readers() const { return false; }

  // Throws DataError if arrays of `bytes` bytes exceed the memory limit for a file of this size
  // (open_file.h); this is possible only for compressed ones.
  void check_unpacked(std::uint64_t bytes) const;

  // Reads bytes of array `index` from `offset` on, row-major and little-endian. Fast if arrays are
  // read sequentially in the order of the entries. REQUIRES: within the array. Throws DataError for
  // detected damage, Error if the medium fails.
  virtual void read(std::size_t index, std::uint64_t offset, std::span<std::byte> target) = 0;
  // Must be called after the last read: reads the parts that no read() has covered and verifies the
  // file's digests and checksums. Throws DataError.
  virtual void finish() = 0;

 protected:
  explicit ArraySource(std::unique_ptr<ByteSource> bytes) : bytes_(std::move(bytes)) {}

  std::unique_ptr<ByteSource> bytes_;
  std::vector<ArrayEntry> entries_;
  std::vector<UnreadArray> unread_;
};

// Reads all arrays into memory, and checks the file to its end. Throws DataError before anything is
// unpacked if they are too large (check_unpacked()).
std::vector<NamedArray> read_arrays(ArraySource& source);

// Opens the arrays of a checkpoint. Reads and checks the header. Throws DataError.
std::unique_ptr<ArraySource> open_checkpoint_arrays(std::unique_ptr<ByteSource> bytes);
bool is_checkpoint(const ByteSource& bytes);  // from its first bytes

}  // namespace io
