// Implements NVIDIA's rules of compatibility (CUDA C++ Programming Guide, "Binary Compatibility"
// and "PTX Compatibility"; "Family-Specific Architecture Features").
#include "io/gpu/compiled_code.h"

#include <charconv>
#include <cstdlib>
#include <optional>
#include <vector>

#include "io/base/text/text_parts.h"

namespace base::cuda {
namespace {

struct Architecture {
  int major = 0, minor = 0;
  char feature = 0;  // 'a': for this one only; 'f': for its family
  bool real = true, is_virtual = true;
};

// Parses e.g. "90a-real"; returns nothing for any other word.
std::optional<Architecture> parsed(std::string_view word) {
  Architecture it;
  int number = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
  if (error != std::errc() || number < 10) return std::nullopt;
  it.major = number / 10;
  it.minor = number % 10;
  std::string_view rest = word.substr(static_cast<std::size_t>(end - word.data()));
  if (rest.starts_with('a') || rest.starts_with('f')) {
    it.feature = rest.front();
    rest.remove_prefix(1);
  }
  if (rest == "-real")
    it.is_virtual = false;
  else if (rest == "-virtual")
    it.real = false;
  else if (!rest.empty())
    return std::nullopt;
  return it;
}

std::vector<std::string> words_of(std::string_view architectures) {
  std::string text(architectures);
  for (char& each : text)
    if (each == ';') each = ' ';
  std::vector<std::string> words;
  for (const std::string& word : split_text(text, ' '))
    if (!word.empty()) words.push_back(word);
  return words;
}

// Code for a family runs on its later members; code for a specific architecture runs on no other.
bool fits(const Architecture& code, int major, int minor, bool newer_too) {
  if (code.feature == 'a') return major == code.major && minor == code.minor;
  if (major == code.major) return minor >= code.minor;
  return newer_too && code.feature == 0 && major > code.major;
}

std::string name_of(const char* prefix, const Architecture& code) {
  std::string name = prefix + std::to_string(code.major) + std::to_string(code.minor);
  if (code.feature != 0) name += code.feature;
  return name;
}

struct Chosen {
  Runs runs = Runs::kNo;
  std::string name;  // as in code_for()
};

// Chooses as the driver does: machine code before PTX, and the newest that is compatible of each.
Chosen chosen_code(std::string_view architectures, int major, int minor) {
  std::optional<Architecture> real, ptx;
  const auto newer = [](const std::optional<Architecture>& old, const Architecture& code) {
    return !old || std::pair{code.major, code.minor} >= std::pair{old->major, old->minor};
  };
  for (const std::string& word : words_of(architectures)) {
    const std::optional<Architecture> code = parsed(word);
    if (!code) return {Runs::kCompiled, ""};
    if (code->real && fits(*code, major, minor, false) && newer(real, *code)) real = code;
    if (code->is_virtual && fits(*code, major, minor, true) && newer(ptx, *code)) ptx = code;
  }
  if (real) return {Runs::kCompiled, name_of("sm_", *real)};
  if (ptx) return {Runs::kTranslated, name_of("compute_", *ptx)};
  return {};
}

}  // namespace

Runs runs_on(std::string_view architectures, int major, int minor) {
  return chosen_code(architectures, major, minor).runs;
}

std::string code_for(std::string_view architectures, int major, int minor) {
  return chosen_code(architectures, major, minor).name;
}

std::string code_text(std::string_view architectures, int major, int minor) {
  const auto [runs, name] = chosen_code(architectures, major, minor);
  if (runs == Runs::kTranslated) return "kernels from PTX for " + name;
  const std::string own = "sm_" + std::to_string(major) + std::to_string(minor);
  return name.empty() || name.starts_with(own) ? "" : "kernels for " + name;
}

std::string architectures_text(std::string_view architectures) {
  std::string text;
  for (const std::string& word : words_of(architectures)) {
    const auto dash = word.find('-');
    const std::string number = word.substr(0, dash), kind = word.substr(number.size());
    for (const auto& [prefix, other] : {std::pair{"sm_", "-virtual"}, {"compute_", "-real"}})
      if (kind != other) text += (text.empty() ? "" : ", ") + std::string(prefix) + number;
  }
  return text;
}

std::string compiled_architectures() {
#if defined(ENGINE_CUDA_EMULATED)
  const char* text = std::getenv("ENGINE_EMULATED_ARCHITECTURES");
  return text == nullptr ? "80-real 90a-real 80-virtual" : text;
#elif defined(ENGINE_COMPILED_ARCHITECTURES)
  return ENGINE_COMPILED_ARCHITECTURES;
#else
  return "";
#endif
}

std::string translation_text(const std::string& name) {
  return "kernels were compiled for " + architectures_text(compiled_architectures()) +
         ", not for " + name +
         ": when the program first runs there, the driver translates the PTX of each kernel that "
         "is used, which may take a minute, and keeps the result (CUDA_CACHE_PATH, "
         "CUDA_CACHE_MAXSIZE)";
}

}  // namespace base::cuda
