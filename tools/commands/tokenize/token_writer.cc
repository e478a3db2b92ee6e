// Leaves room for the header, whose count is known at the end.
#include "tools/commands/tokenize/token_writer.h"

namespace tools {
namespace {

constexpr std::size_t kHeaderBytes = 128;

}  // namespace

TokenWriter::TokenWriter(const std::string& path, int bits)
    : file_(path, kHeaderBytes), bits_(bits) {
  file_.write(std::vector<std::byte>(kHeaderBytes));
}

void TokenWriter::write(std::span<const std::int32_t> ids) {
  count_ += ids.size();
  if (bits_ == 32) return file_.write(std::as_bytes(ids));
  narrow_.assign(ids.begin(), ids.end());
  file_.write(std::as_bytes(std::span(narrow_)));
}

// Format: numpy.org/doc/stable/reference/generated/numpy.lib.format.html, version 1.0.
void TokenWriter::finish() {
  constexpr std::size_t kFixedBytes = 10;
  std::string header("\x93NUMPY\x01\x00", 8);
  header += static_cast<char>(kHeaderBytes - kFixedBytes);
  header += '\0';
  header += std::string("{'descr': '<u") + (bits_ == 32 ? "4" : "2") +
            "', 'fortran_order': False, 'shape': (" + std::to_string(count_) + ",), }";
  header.resize(kHeaderBytes - 1, ' ');
  header += '\n';
  file_.write_at(0, std::as_bytes(std::span(header)));
  file_.commit();
}

}  // namespace tools
