// The assembler of archives.
#include "tests/io/interchange/zip/zip_fixture.h"

#include <zlib.h>

#include <stdexcept>

namespace zip_fixture {
namespace {

std::string number(std::uint64_t value, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text += static_cast<char>(value >> (8 * i) & 0xFF);
  return text;
}

std::string deflated(const std::string& content) {
  z_stream stream{};
  if (deflateInit2(&stream, 9, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY) != Z_OK)
    throw std::runtime_error("deflateInit2");
  std::string out(content.size() + 1000, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(content.data()));
  stream.avail_in = static_cast<uInt>(content.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  if (deflate(&stream, Z_FINISH) != Z_STREAM_END) throw std::runtime_error("deflate");
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

std::uint32_t crc_of(const std::string& content) {
  return static_cast<std::uint32_t>(
      crc32_z(0, reinterpret_cast<const Bytef*>(content.data()), content.size()));
}

struct Entry {
  std::string name;
  std::uint64_t compressed, size, at;
  std::uint32_t crc;
};

// Flags, method, time, day, sum, sizes: what both headers share.
std::string common(const Entry& e, const Tricks& t, bool local) {
  const bool later = local && t.descriptor;
  const int method = t.method >= 0 ? t.method : t.deflate ? 8 : 0;
  std::string text = number(static_cast<std::uint64_t>(t.flags), 2) +
                     number(static_cast<std::uint64_t>(method), 2) + number(0, 4);
  text += number(later ? 0 : e.crc, 4);
  text += number(later     ? 0
                 : t.zip64 ? 0xFFFFFFFF
                           : e.compressed,
                 4) +
          number(later     ? 0
                 : t.zip64 ? 0xFFFFFFFF
                           : e.size,
                 4);
  return text;
}

std::string local_header(const Entry& e, const Tricks& t) {
  const std::string extra =
      t.zip64 ? number(1, 2) + number(16, 2) + number(e.size, 8) + number(e.compressed, 8) : "";
  return "PK\x03\x04" + number(20, 2) + common(e, t, true) + number(e.name.size(), 2) +
         number(extra.size(), 2) + e.name + extra;
}

std::string central_header(const Entry& e, const Tricks& t) {
  const std::string extra = t.zip64 ? number(1, 2) + number(24, 2) + number(e.size, 8) +
                                          number(e.compressed, 8) + number(e.at, 8)
                                    : "";
  return "PK\x01\x02" + number(20, 2) + number(20, 2) + common(e, t, false) +
         number(e.name.size(), 2) + number(extra.size(), 2) + number(0, 2) + number(0, 2) +
         number(0, 6) + number(t.zip64 ? 0xFFFFFFFF : e.at, 4) + e.name + extra;
}

std::string with_directory(std::string out, const std::vector<Entry>& entries, const Tricks& t) {
  const std::uint64_t begin = out.size();
  for (const Entry& e : entries) out += central_header(e, t);
  const std::uint64_t bytes = out.size() - begin, end = out.size(),
                      count = entries.size() + static_cast<std::uint64_t>(t.count_more);
  if (t.zip64) {
    out += "PK\x06\x06" + number(44, 8) + number(45, 2) + number(45, 2) + number(0, 8) +
           number(count, 8) + number(count, 8) + number(bytes, 8) + number(begin, 8);
    out += "PK\x06\x07" + number(0, 4) + number(end, 8) + number(1, 4);
  }
  out += "PK\x05\x06" + number(static_cast<std::uint64_t>(t.disk), 2) + number(0, 2);
  out += t.zip64
             ? number(0xFFFF, 2) + number(0xFFFF, 2) + number(0xFFFFFFFF, 4) + number(0xFFFFFFFF, 4)
             : number(count, 2) + number(count, 2) + number(bytes, 4) +
                   number(begin + static_cast<std::uint64_t>(t.directory_shift), 4);
  return out + number(t.comment.size(), 2) + t.comment;
}

}  // namespace

std::string zip_of(const Members& members, const Tricks& t) {
  std::string out(static_cast<std::size_t>(t.junk_before), 'j');
  std::vector<Entry> entries;
  for (const auto& [name, content] : members) {
    const std::string data = t.deflate ? deflated(content) : content;
    const auto more = static_cast<std::uint64_t>(t.size_more);
    Entry e{name, data.size() + (t.deflate ? 0 : more), content.size() + more,
            out.size() - static_cast<std::size_t>(t.junk_before), crc_of(content) ^ t.crc_xor};
    out += local_header(e, t) + data;
    if (t.descriptor)
      out += "PK\x07\x08" + number(e.crc, 4) + number(e.compressed, 4) + number(e.size, 4);
    entries.push_back(std::move(e));
  }
  if (t.same_place) entries.back().at = entries.front().at;
  if (t.local_offset >= 0) entries.back().at = static_cast<std::uint64_t>(t.local_offset);
  return with_directory(std::move(out), entries, t);
}

std::string local_part(const std::string& name, const std::string& content) {
  return local_header({name, content.size(), content.size(), 0, crc_of(content)}, {}) + content;
}

std::string overlapping(const std::string& first, const std::string& content,
                        const std::string& second, const std::string& second_content) {
  const std::string out = local_part(first, content);
  const std::uint64_t inside = out.size() - local_part(second, second_content).size();
  return with_directory(
      out,
      {{first, content.size(), content.size(), 0, crc_of(content)},
       {second, second_content.size(), second_content.size(), inside, crc_of(second_content)}},
      {});
}

std::string npy_text(const std::string& dictionary, int version) {
  return "\x93NUMPY" + number(static_cast<std::uint64_t>(version), 2) +
         number(dictionary.size(), version == 1 ? 2 : 4) + dictionary;
}

std::string npy(const std::string& descr, const std::string& shape, const std::string& data) {
  return npy_text("{'descr': '" + descr + "', 'fortran_order': False, 'shape': " + shape + ", }\n",
                  1) +
         data;
}

}  // namespace zip_fixture
