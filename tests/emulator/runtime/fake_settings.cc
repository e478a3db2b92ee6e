// Those of the devices are read whenever they are asked for, those of failing calls once.
#include "tests/emulator/runtime/fake_settings.h"

#include <charconv>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

namespace fake {
namespace {

std::string variable(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? "" : text;
}

struct Calls {
  std::mutex mutex;
  std::uint64_t all = 0;
  std::map<std::string, std::uint64_t> of;  // each function
};

}  // namespace

int device_count() {
  const std::string text = variable("ENGINE_EMULATED_GPUS");
  return text.empty() ? 1 : std::atoi(text.c_str());
}

std::size_t device_bytes() {
  const std::string text = variable("ENGINE_EMULATED_MEMORY");
  return text.empty() ? std::size_t{4} << 30 : std::strtoull(text.c_str(), nullptr, 10);
}

int capability_of(int device) {
  const char* text = std::getenv("ENGINE_EMULATED_COMPUTE");
  if (text == nullptr) return 80;
  for (const char* comma = std::strchr(text, ','); device > 0 && comma != nullptr; --device) {
    text = comma + 1;
    comma = std::strchr(text, ',');
  }
  return static_cast<int>(std::strtod(text, nullptr) * 10 + 0.5);
}

std::string capture_mode(int device) {
  const std::string text = variable("ENGINE_EMULATED_CAPTURE");
  const std::size_t at = text.find('@');
  if (at == std::string::npos) return text;
  return std::atoi(text.c_str() + at + 1) == device ? text.substr(0, at) : "";
}

int processor_count() {
  const std::string text = variable("ENGINE_EMULATED_PROCESSORS");
  if (text.empty()) return 4;
  int count = 0;
  const char* const past = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), past, count);
  if (error == std::errc() && end == past && count >= 1 && count <= 1000) return count;
  std::fprintf(stderr, "emulated device: ENGINE_EMULATED_PROCESSORS is '%s', expected 1 to 1000\n",
               text.c_str());
  std::abort();
}

bool are_slices() { return variable("ENGINE_EMULATED_SLICES") == "1"; }

bool is_chosen(const char* function) {
  static const std::string chosen = variable("ENGINE_EMULATED_FAIL"),
                           file = variable("ENGINE_EMULATED_CALLS");
  if (chosen.empty() && file.empty()) return false;
  static Calls* const calls = new Calls;  // outlives static destructors
  const std::lock_guard lock(calls->mutex);
  const std::uint64_t number = ++calls->all, own = ++calls->of[function];
  if (!file.empty())
    if (std::FILE* out = std::fopen(file.c_str(), "ae"); out != nullptr) {
      std::fprintf(out, "%s\n", function);
      std::fclose(out);
    }
  return chosen == std::to_string(number) ||
         chosen == std::string(function) + ":" + std::to_string(own);
}

bool fails_for_good() {
  static const bool wanted = variable("ENGINE_EMULATED_FAIL_FOR_GOOD") == "1";
  return wanted;
}

}  // namespace fake
