// Zip archives and .npy arrays put together byte by byte, with every lie that a test may want.
// Shares no code with the reader.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace zip_fixture {

struct Tricks {
  int flags = 0, method = -1;  // -1: what is true
  bool deflate = false, zip64 = false, same_place = false, descriptor = false;
  std::uint32_t crc_xor = 0;
  int count_more = 0, directory_shift = 0;
  std::int64_t local_offset = -1;  // of the last member, in the directory
  std::int64_t size_more = 0;      // of every member, in both headers
  int disk = 0, junk_before = 0;
  std::string comment{};
};

using Members = std::vector<std::pair<std::string, std::string>>;  // name, content

std::string zip_of(const Members& members, const Tricks& tricks = {});
std::string local_part(const std::string& name,
                       const std::string& content);  // local header and data, stored
// An archive in which the second member lies inside the first one's content, which must end with
// local_part(second).
std::string overlapping(const std::string& first, const std::string& content,
                        const std::string& second, const std::string& second_content);

std::string npy_text(const std::string& dictionary, int version);  // a .npy header of any text
std::string npy(const std::string& descr, const std::string& shape, const std::string& data);

}  // namespace zip_fixture
