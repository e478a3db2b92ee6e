// Zip archives as far as .npz and .pth need them: members stored or deflated, sizes up to 2^63
// (zip64). Written from PKWARE's APPNOTE 6.3. Why by hand: docs/adr/0015-zip-archives-by-hand.md.
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
  std::string name;  // relative, UTF-8, without "." and ".." as parts
  bool deflated = false;
  std::uint64_t begin = 0;  // of the (compressed) data, in the file
  std::uint64_t compressed = 0, size = 0;
  std::uint32_t crc = 0;
};

bool is_zip(const ByteSource& file);  // by its first bytes

// The members in the order of the directory. Both headers of a member are read and must agree;
// members may not overlap; the directory must reach to the end of the file. Throws DataError, also
// for encrypted members, other methods, archives in parts, and a comment behind the directory (it
// makes the directory's place a guess).
std::vector<ZipMember> read_zip_directory(const ByteSource& file);

// Reads members front to back, each as often as one likes, and holds them against their sums. One
// thread at a time.
class ZipReader {
 public:
  explicit ZipReader(const ByteSource& file);
  ~ZipReader();
  const std::vector<ZipMember>& members() const { return members_; }
  // Bytes of a member from `offset` on. REQUIRES: within its size. Going back in a deflated member
  // inflates it from the start. Throws DataError for damaged data, and for a wrong sum once the
  // member's last byte has been read.
  void read(std::size_t member, std::uint64_t offset, std::span<std::byte> target);
  // Reads to the end what was not read yet, and so checks every sum. Throws DataError.
  void finish();

 private:
  class Inflater;
  struct Progress {
    std::uint64_t summed = 0;  // so many bytes of the member are in `crc`
    std::uint32_t crc = 0;
  };
  void sum(std::size_t member, std::uint64_t offset, std::span<const std::byte> bytes);

  const ByteSource& file_;
  std::vector<ZipMember> members_;
  std::vector<Progress> progress_;
  std::unique_ptr<Inflater> inflater_;  // of the member read last, when deflated
};

// Writes an archive of stored members front to back. No time of day goes into it: same content,
// same bytes. With an `alignment` above 1 every member's data begin at a multiple of it, as those
// of PyTorch do, for readers that map the file.
class ZipWriter {
 public:
  using Output = std::function<void(std::span<const std::byte>)>;
  explicit ZipWriter(Output output, std::uint64_t alignment = 1)
      : output_(std::move(output)), alignment_(alignment) {}
  // One member whose data are the parts, one after the other. Throws what the output throws.
  void add(const std::string& name, const std::vector<std::span<const std::byte>>& parts);
  void finish();
  // Bytes that an archive with these members takes.
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
