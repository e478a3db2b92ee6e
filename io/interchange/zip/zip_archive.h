// The part of the zip format that .npz and .pth need: members stored or deflated, sizes up to 2^63
// (zip64). Implemented from PKWARE's APPNOTE 6.3. The reason for not using a library:
// docs/adr/0015-zip-archives-by-hand.md.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "io/checkpoint/byte_source.h"

namespace io {

struct ZipMember {
  std::string name;  // relative, UTF-8, without "." and ".." as components
  bool deflated = false;
  std::uint64_t begin = 0;  // start of the (compressed) data in the file
  std::uint64_t compressed = 0, size = 0;
  std::uint32_t crc = 0;
};

bool is_zip(const ByteSource& file);  // checks the first bytes

// Returns the members in the order of the directory. Both headers of a member are read and must
// agree; members may not overlap; the directory must extend to the end of the file. Throws
// DataError, also for encrypted members, other methods, multi-part archives, and a comment after
// the directory (which would make the directory's position ambiguous).
std::vector<ZipMember> read_zip_directory(const ByteSource& file);

// Reads members sequentially, each any number of times, and verifies their checksums. For one
// thread at a time.
class ZipReader {
 public:
  explicit ZipReader(const ByteSource& file);
  ~ZipReader();
  const std::vector<ZipMember>& members() const { return members_; }
  // Reads bytes of a member from `offset` on. REQUIRES: within its size. Reading an earlier part of
  // a deflated member inflates it from the start. Throws DataError for damaged data, and for a
  // wrong checksum after the member's last byte has been read.
  void read(std::size_t member, std::uint64_t offset, std::span<std::byte> target);
  // Reads all remaining data to the end, and so verifies every checksum. Throws DataError.
  void finish();

 private:
  class Inflater;
  struct Progress {
    std::uint64_t summed = 0;  // number of the member's bytes included in `crc`
    std::uint32_t crc = 0;
  };
  void sum(std::size_t member, std::uint64_t offset, std::span<const std::byte> bytes);

  const ByteSource& file_;
  std::vector<ZipMember> members_;
  std::vector<Progress> progress_;
  std::unique_ptr<Inflater> inflater_;  // for the member read last, if it is deflated
};

// Writes an archive of stored members sequentially. It contains no timestamps: the same contents
// give the same bytes. With an `alignment` above 1 every member's data start at a multiple of it,
// as in PyTorch's files, for readers that map the file.
class ZipWriter {
 public:
  using Output = std::function<void(std::span<const std::byte>)>;
  explicit ZipWriter(Output output, std::uint64_t alignment = 1)
      : output_(std::move(output)), alignment_(alignment) {}
  // Adds one member whose data are the concatenated parts. Rethrows the output's exceptions.
  void add(const std::string& name, const std::vector<std::span<const std::byte>>& parts);
  void finish();
  // Returns the size in bytes of an archive with these members.
  static std::uint64_t total_bytes(
      const std::vector<std::pair<std::string, std::uint64_t>>& members,
      std::uint64_t alignment = 1);

 private:
  struct Written {
    std::string name;
    std::uint64_t size = 0, at = 0;
    std::uint32_t crc = 0;
  };
  void write(std::span<const std::byte> bytes);

  Output output_;
  std::uint64_t alignment_;
  std::uint64_t at_ = 0;
  std::vector<Written> members_;
};

}  // namespace io
