// A file of PTX: finds its kernels, and decodes one when it is asked for.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tests/emulator/ptx/decode/ptx_program.h"

namespace ptx {

class Module {
 public:
  // Throws Fault.
  static std::unique_ptr<Module> read(const std::string& path);
  Module(std::string path, std::string text);

  const std::string& path() const { return path_; }
  // Mangled.
  std::vector<std::string> kernels() const;
  bool has(const std::string& kernel) const { return entries_.count(kernel) != 0; }
  // Throws Fault, with the line, for whatever is not known here.
  std::unique_ptr<Program> decode(const std::string& kernel) const;

 private:
  friend class Decoder;
  struct Body {
    std::size_t header, begin, end;  // of the text: the list of parameters; between the braces
  };
  const Body* function(std::string_view name) const;
  std::uint32_t line_of(std::size_t position) const;

  std::string path_, text_;
  std::map<std::string, Body, std::less<>> entries_, functions_;
};

}  // namespace ptx
