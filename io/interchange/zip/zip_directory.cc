// Reads a zip directory. Every value is checked against the size of the file and the local headers
// before it is used.
#include <algorithm>
#include <cstring>
#include <set>

#include "io/base/text/utf8.h"
#include "io/interchange/zip/zip_archive.h"
#include "io/interchange/zip/zip_format.h"

namespace io {
namespace {

constexpr std::uint32_t kLocal = 0x04034b50, kCentral = 0x02014b50, kEndOfDirectory = 0x06054b50,
                        kEnd64 = 0x06064b50, kLocator64 = 0x07064b50;
constexpr std::uint32_t kMasked32 = 0xFFFFFFFF;  // the number is in a zip64 field
constexpr std::uint16_t kMasked16 = 0xFFFF;
constexpr std::uint64_t kLargestDirectory = 100'000'000, kLongestMemberName = 4096;
constexpr std::uint16_t kEncrypted = 1 << 0, kDescriptor = 1 << 3;
constexpr std::uint64_t kDeflateRatio = 1032;  // maximum compression ratio of deflate

using Bytes = std::span<const std::byte>;

template <class T>
T get(Bytes bytes, std::size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

struct Directory {
  std::uint64_t begin = 0, bytes = 0, count = 0;
};

class DirectoryReader {
 public:
  explicit DirectoryReader(const ByteSource& file) : file_(file) {}

  std::vector<ZipMember> read() {
    const Directory directory = find();
    const std::vector<std::byte> bytes = file_.bytes(directory.begin, directory.bytes);
    std::vector<ZipMember> members;
    std::set<std::string> names;
    Bytes left(bytes);
    for (std::uint64_t i = 0; i < directory.count; ++i) {
      members.push_back(entry(left));
      if (!names.insert(members.back().name).second)
        fail("'" + members.back().name + "' is in the archive twice");
    }
    if (!left.empty())
      fail(std::to_string(left.size()) + " bytes of the directory belong to no member");
    check_places(members, directory.begin);
    return members;
  }

 private:
  struct Span {
    std::uint64_t begin, end;
  };

  [[noreturn]] void fail(const std::string& fault) const {
    throw DataError(file_.name() + ": bad zip archive: " + fault);
  }

  // The end record, as it is; numbers that do not fit are masked.
  Directory read_end() const {
    const std::uint64_t size = file_.size();
    if (size < kEndBytes) fail("truncated: " + std::to_string(size) + " bytes");
    const std::vector<std::byte> end = file_.bytes(size - kEndBytes, kEndBytes);
    if (get<std::uint32_t>(end, 0) != kEndOfDirectory || get<std::uint16_t>(end, 20) != 0)
      fail("its directory is not at the end of the file (truncated, or a comment follows)");
    const Directory d{.begin = get<std::uint32_t>(end, 16),
                      .bytes = get<std::uint32_t>(end, 12),
                      .count = get<std::uint16_t>(end, 10)};
    if (get<std::uint16_t>(end, 4) != 0 || get<std::uint16_t>(end, 6) != 0 ||
        get<std::uint16_t>(end, 8) != d.count)
      fail("it is one of several parts");
    return d;
  }

  Directory find() const {
    Directory d = read_end();
    std::uint64_t limit = file_.size() - kEndBytes;
    if (d.begin == kMasked32 || d.bytes == kMasked32 || d.count == kMasked16 ||
        has_locator(limit)) {
      const Directory d64 = find64(limit);  // some writers add it to every archive
      const auto agree = [](std::uint64_t number, std::uint64_t mask, std::uint64_t larger) {
        return number == mask || number == larger;
      };
      if (!agree(d.begin, kMasked32, d64.begin) || !agree(d.bytes, kMasked32, d64.bytes) ||
          !agree(d.count, kMasked16, d64.count))
        fail("its two end-of-directory records disagree");
      d = d64;
    }
    if (d.bytes > limit || d.begin != limit - d.bytes)
      fail("a directory of " + std::to_string(d.bytes) + " bytes at " + std::to_string(d.begin) +
           " does not end at " + std::to_string(limit));
    if (d.bytes > kLargestDirectory)
      fail("a directory of " + std::to_string(d.bytes) + " bytes; at most 100000000");
    if (d.count > d.bytes / kCentralBytes)
      fail(std::to_string(d.count) + " members do not fit into a directory of " +
           std::to_string(d.bytes) + " bytes");
    return d;
  }

  bool has_locator(std::uint64_t limit) const {
    return limit >= kLocator64Bytes &&
           get<std::uint32_t>(file_.bytes(limit - kLocator64Bytes, 4), 0) == kLocator64;
  }

  // zip64: the locator precedes the end record and contains the position of the zip64 one. `limit`
  // becomes that position.
  Directory find64(std::uint64_t& limit) const {
    if (limit < kLocator64Bytes + kEnd64Bytes) fail("truncated: no zip64 directory");
    const std::vector<std::byte> locator = file_.bytes(limit - kLocator64Bytes, kLocator64Bytes);
    const std::uint64_t at = limit - kLocator64Bytes - kEnd64Bytes;
    if (get<std::uint32_t>(locator, 0) != kLocator64 || get<std::uint64_t>(locator, 8) != at)
      fail("no zip64 locator where there should be one");
    const std::vector<std::byte> end = file_.bytes(at, kEnd64Bytes);
    if (get<std::uint32_t>(end, 0) != kEnd64 || get<std::uint64_t>(end, 4) != kEnd64Bytes - 12)
      fail("no zip64 end of directory");
    if (get<std::uint32_t>(locator, 4) != 0 || get<std::uint32_t>(locator, 16) > 1 ||
        get<std::uint32_t>(end, 16) != 0 || get<std::uint32_t>(end, 20) != 0 ||
        get<std::uint64_t>(end, 24) != get<std::uint64_t>(end, 32))
      fail("it is one of several parts");
    limit = at;
    return {.begin = get<std::uint64_t>(end, 48),
            .bytes = get<std::uint64_t>(end, 40),
            .count = get<std::uint64_t>(end, 32)};
  }

  // Reads the zip64 numbers that replace masked ones, in their fixed order.
  void unmask(Bytes extra, const std::string& name, std::vector<std::uint64_t*> masked) const {
    while (!extra.empty()) {
      if (extra.size() < 4 || get<std::uint16_t>(extra, 2) > extra.size() - 4)
        fail("a broken extra field of '" + name + "'");
      const auto kind = get<std::uint16_t>(extra, 0);
      Bytes field = extra.subspan(4, get<std::uint16_t>(extra, 2));
      extra = extra.subspan(4 + field.size());
      if (kind != 1) continue;
      for (std::uint64_t* number : masked) {
        if (field.size() < 8) fail("a zip64 field of '" + name + "' is too short");
        *number = get<std::uint64_t>(field, 0);
        field = field.subspan(8);
      }
      masked.clear();
    }
    if (!masked.empty()) fail("'" + name + "' lacks its zip64 field");
  }

  void check_name(const std::string& name, std::uint16_t flags) const {
    const bool ascii = std::all_of(name.begin(), name.end(),
                                   [](char c) { return static_cast<unsigned char>(c) < 0x80; });
    if (name.empty() || name.size() > kLongestMemberName)
      fail("a name of " + std::to_string(name.size()) + " bytes; expected 1 to 4096");
    if (!base::is_utf8(name) || (!ascii && (flags & kUtf8) == 0)) fail("a name that is not UTF-8");
    if (name.find('\0') != std::string::npos || name.find('\\') != std::string::npos)
      fail("a name with a zero or a backslash");
    if (name.front() == '/' || ("/" + name + "/").find("/../") != std::string::npos ||
        ("/" + name + "/").find("/./") != std::string::npos)
      fail("the name '" + name + "' points outside the archive");
  }

  ZipMember entry(Bytes& left) {
    if (left.size() < kCentralBytes || get<std::uint32_t>(left, 0) != kCentral)
      fail("a directory entry is missing");
    const auto flags = get<std::uint16_t>(left, 8), method = get<std::uint16_t>(left, 10);
    const std::uint64_t name_bytes = get<std::uint16_t>(left, 28),
                        extra_bytes = get<std::uint16_t>(left, 30),
                        comment_bytes = get<std::uint16_t>(left, 32),
                        all = kCentralBytes + name_bytes + extra_bytes + comment_bytes;
    if (all > left.size()) fail("a directory entry ends beyond the directory");
    ZipMember member;
    member.name.assign(reinterpret_cast<const char*>(left.data()) + kCentralBytes, name_bytes);
    check_name(member.name, flags);
    if ((flags & ~(kDescriptor | kUtf8 | 6)) != 0)  // 6: bits of the compression level
      fail("'" + member.name + "' is " +
           ((flags & kEncrypted) != 0 ? "encrypted" : "of a kind unknown to this reader"));
    if (method != 0 && method != 8)
      fail("'" + member.name + "' is compressed by method " + std::to_string(method) +
           "; known are 0 (stored) and 8 (deflated)");
    if (get<std::uint16_t>(left, 34) != 0) fail("'" + member.name + "' is in another part");
    member.deflated = method == 8;
    member.crc = get<std::uint32_t>(left, 16);
    member.compressed = get<std::uint32_t>(left, 20);
    member.size = get<std::uint32_t>(left, 24);
    std::uint64_t header = get<std::uint32_t>(left, 42);
    std::vector<std::uint64_t*> masked;
    for (std::uint64_t* number : {&member.size, &member.compressed, &header})
      if (*number == kMasked32) masked.push_back(number);
    unmask(left.subspan(kCentralBytes + name_bytes, extra_bytes), member.name, masked);
    if (!member.deflated && member.compressed != member.size)
      fail("'" + member.name + "' is stored, but in " + std::to_string(member.compressed) +
           " bytes instead of " + std::to_string(member.size));
    if (member.deflated && member.size / kDeflateRatio > member.compressed)
      fail("'" + member.name + "' would grow from " + std::to_string(member.compressed) + " to " +
           std::to_string(member.size) + " bytes, more than deflate can");
    check_local(member, header, flags, method);
    left = left.subspan(all);
    return member;
  }

  // Checks the header before the data; it gives the start of the data, and must agree with the
  // directory.
  void check_local(ZipMember& member, std::uint64_t at, std::uint16_t flags, std::uint16_t method) {
    const std::uint64_t size = file_.size();
    if (at > size || size - at < kLocalBytes)
      fail("'" + member.name + "' begins beyond the end of the file");
    std::byte fixed[kLocalBytes];
    file_.read(at, fixed);
    const std::uint64_t name_bytes = get<std::uint16_t>(fixed, 26),
                        extra_bytes = get<std::uint16_t>(fixed, 28);
    member.begin = at + kLocalBytes + name_bytes + extra_bytes;
    if (get<std::uint32_t>(fixed, 0) != kLocal || member.begin > size ||
        member.compressed > size - member.begin)
      fail("no data of '" + member.name + "' at " + std::to_string(at));
    const std::vector<std::byte> name = file_.bytes(at + kLocalBytes, name_bytes + extra_bytes);
    std::uint64_t compressed = get<std::uint32_t>(fixed, 18), whole = get<std::uint32_t>(fixed, 22);
    std::vector<std::uint64_t*> masked;
    if (whole == kMasked32) masked.push_back(&whole);
    if (compressed == kMasked32) masked.push_back(&compressed);
    unmask(Bytes(name).subspan(name_bytes), member.name, masked);
    // Sum and sizes may follow the data, and are zero here then.
    const auto agree = [&](std::uint64_t here, std::uint64_t there) {
      return here == there || ((flags & kDescriptor) != 0 && here == 0);
    };
    if (get<std::uint16_t>(fixed, 6) != flags || get<std::uint16_t>(fixed, 8) != method ||
        name_bytes != member.name.size() ||
        std::memcmp(name.data(), member.name.data(), name_bytes) != 0 ||
        !agree(get<std::uint32_t>(fixed, 14), member.crc) ||
        !agree(compressed, member.compressed) || !agree(whole, member.size))
      fail("the two headers of '" + member.name + "' disagree");
    places_.push_back({at, member.begin + member.compressed});
  }

  void check_places(const std::vector<ZipMember>& members, std::uint64_t directory) {
    std::sort(places_.begin(), places_.end(),
              [](const Span& a, const Span& b) { return a.begin < b.begin; });
    for (std::size_t i = 0; i < members.size(); ++i)
      if (places_[i].end > (i + 1 < places_.size() ? places_[i + 1].begin : directory))
        fail("members overlap");
  }

  const ByteSource& file_;
  std::vector<Span> places_;
};

}  // namespace

bool is_zip(const ByteSource& file) {
  std::byte first[4];
  if (file.size() < kEndBytes) return false;
  file.read(0, first);
  const auto magic = get<std::uint32_t>(first, 0);
  return magic == kLocal || magic == kEndOfDirectory;
}

std::vector<ZipMember> read_zip_directory(const ByteSource& file) {
  return DirectoryReader(file).read();
}

}  // namespace io
