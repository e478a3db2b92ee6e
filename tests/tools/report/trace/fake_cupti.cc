// Plays CUPTI: whenever it is asked for what it holds, there are a kernel, a copy and a fill since
// the last time; FAKE_CUPTI=late: just before that. FAKE_CUPTI=refuses: recording is not allowed.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "tests/tools/report/trace/cupti_records.h"

namespace {

using namespace fake_cupti;

std::uint64_t (*own_clock)() = nullptr;
void (*give)(std::uint8_t**, std::size_t*, std::size_t*) = nullptr;
void (*take)(void*, std::uint32_t, std::uint8_t*, std::size_t, std::size_t) = nullptr;
std::uint64_t last = 0;
int enabled = 0;

bool plays(const char* part) {
  const char* text = std::getenv("FAKE_CUPTI");
  return text != nullptr && std::string_view(text) == part;
}
std::size_t size_of(std::uint32_t kind) {
  return kind == 10 ? sizeof(Kernel) : kind == 1 ? sizeof(Copy) : sizeof(Fill);
}

}  // namespace

extern "C" {
int cuptiGetResultString(int, const char** text) { return *text = "NOT_PERMITTED", 0; }
int cuptiActivityRegisterTimestampCallback(std::uint64_t (*clock)()) {
  return own_clock = clock, 0;
}
int cuptiActivityRegisterCallbacks(void (*request)(std::uint8_t**, std::size_t*, std::size_t*),
                                   void (*complete)(void*, std::uint32_t, std::uint8_t*,
                                                    std::size_t, std::size_t)) {
  give = request, take = complete;
  return 0;
}
int cuptiActivityEnable(std::uint32_t) {
  if (plays("refuses")) return 35;
  if (enabled++ == 0) last = own_clock();
  return 0;
}
int cuptiActivityDisable(std::uint32_t) { return --enabled, 0; }
int cuptiActivityFlushAll(std::uint32_t) {
  const std::uint64_t now = own_clock();
  if (plays("late")) last = now - 1000;
  const std::uint64_t part = (now - last) / 4;
  Kernel kernel;
  kernel.start = last + part, kernel.end = last + 2 * part;
  Copy copy;
  copy.start = last, copy.end = last + part;
  Fill fill;
  fill.start = last + 2 * part, fill.end = last + 3 * part;
  last = now;
  std::uint8_t* buffer = nullptr;
  std::size_t bytes = 0, most = 0;
  give(&buffer, &bytes, &most);
  std::size_t at = 0;
  const auto add = [&](const auto& record) {
    std::memcpy(buffer + at, &record, sizeof record);
    at += sizeof record;
  };
  add(kernel), add(copy), add(fill);
  take(nullptr, 0, buffer, bytes, at);
  return 0;
}
int cuptiActivityGetNextRecord(std::uint8_t* buffer, std::size_t valid, void** record) {
  std::size_t at = 0;
  if (*record != nullptr) {
    std::uint32_t kind = 0;
    std::memcpy(&kind, *record, sizeof kind);
    at = static_cast<std::size_t>(static_cast<std::uint8_t*>(*record) - buffer) + size_of(kind);
  }
  if (at >= valid) return 21;  // no more
  *record = buffer + at;
  return 0;
}
}
