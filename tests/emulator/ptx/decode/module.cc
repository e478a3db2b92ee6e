// Finds the bodies of kernels and functions in the text.
#include "tests/emulator/ptx/decode/module.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <utility>

#include "tests/emulator/ptx/decode/decoder.h"
#include "tests/emulator/ptx/decode/text_reader.h"

namespace ptx {
std::unique_ptr<Module> Module::read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw Fault("no PTX at " + path);
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  return std::make_unique<Module>(path, std::move(text));
}

Module::Module(std::string path, std::string text)
    : path_(std::move(path)), text_(std::move(text)) {
  // From one ".entry" or ".func" to the next; within bodies nothing but braces is looked at.
  const auto find_from = [&](std::size_t at) {
    return std::min(text_.find(".entry", at), text_.find(".func", at));
  };
  for (std::size_t at = find_from(0); at != std::string::npos; at = find_from(at)) {
    const bool entry = text_.compare(at, 6, ".entry") == 0;
    TextReader reader(text_, at);
    reader.word();
    if (!entry && reader.peek() == '(') {  // what it returns
      while (reader.take() != ')') {
      }
    }
    const std::string name(reader.word());
    const std::size_t header = reader.position();
    const std::size_t open = text_.find('{', header), semicolon = text_.find(';', header);
    if (open == std::string::npos || semicolon < open) {  // declared only
      at = header;
      continue;
    }
    std::size_t depth = 1, end = open + 1;
    for (; end < text_.size() && depth > 0; ++end) {
      if (text_[end] == '{') ++depth;
      if (text_[end] == '}') --depth;
    }
    if (depth > 0) throw Fault(path_ + ": " + name + " does not end");
    (entry ? entries_ : functions_)[name] = {at, open + 1, end - 1};
    at = end;
  }
}

std::vector<std::string> Module::kernels() const {
  std::vector<std::string> names;
  for (const auto& [name, body] : entries_) names.push_back(name);
  return names;
}

std::uint32_t Module::line_of(std::size_t position) const {
  return 1 + static_cast<std::uint32_t>(std::count(
                 text_.begin(), text_.begin() + static_cast<std::ptrdiff_t>(position), '\n'));
}

const Module::Body* Module::function(std::string_view name) const {
  const auto found = functions_.find(name);
  return found == functions_.end() ? nullptr : &found->second;
}

std::unique_ptr<Program> Module::decode(const std::string& kernel) const {
  const auto found = entries_.find(kernel);
  if (found == entries_.end()) throw Fault(path_ + ": has no kernel " + kernel);
  return Decoder(*this, found->second, kernel).take();
}

std::string Program::where(std::uint32_t instruction) const {
  if (instruction >= code.size()) return file;
  std::string text = file + ":" + std::to_string(code[instruction].line);
  const auto after =
      std::upper_bound(places.begin(), places.end(), instruction,
                       [](std::uint32_t at, const Place& p) { return at < p.instruction; });
  if (after == places.begin()) return text;
  const Place& place = *(after - 1);
  // ".file N "path"" is at the end of the PTX.
  std::ifstream ptx(file);
  const std::string wanted = ".file\t" + std::to_string(place.file) + " ";
  for (std::string line; std::getline(ptx, line);)
    if (const std::size_t at = line.find(wanted); at != std::string::npos) {
      const std::size_t open = line.find('"', at), close = line.find('"', open + 1);
      if (close != std::string::npos)
        text +=
            " (" + line.substr(open + 1, close - open - 1) + ":" + std::to_string(place.line) + ")";
      break;
    }
  return text;
}

}  // namespace ptx
