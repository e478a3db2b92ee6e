// Plays a tool that NVTX attaches: writes each range's begin and end with its thread's name to the
// file FAKE_NVTX_LOG. FAKE_NVTX=refuses: it does not start; FAKE_NVTX=marks: it takes no ranges.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

namespace {

using AnyFunction = void (*)();

// NvtxExportTableCallbacks
struct Callbacks {
  std::size_t bytes;
  int (*module)(std::uint32_t, AnyFunction***, unsigned*);
};

thread_local std::string thread_name = "unnamed";

bool plays(const char* part) {
  const char* text = std::getenv("FAKE_NVTX");
  return text != nullptr && std::string_view(text) == part;
}

// One write for each line: threads do not mix theirs.
void log(const std::string& line) {
  static std::FILE* file = std::fopen(std::getenv("FAKE_NVTX_LOG"), "we");
  const std::string text = thread_name + ": " + line + "\n";
  std::fwrite(text.data(), 1, text.size(), file);
  std::fflush(file);
}

int push(const char* name) { return log(std::string("begin ") + name), 0; }
int pop() { return log("end"), 0; }
void name_thread(std::uint32_t, const char* name) { thread_name = name; }

}  // namespace

extern "C" int InitializeInjectionNvtx2(const void* (*table)(std::uint32_t)) {
  const auto* callbacks = static_cast<const Callbacks*>(table(1));
  if (plays("refuses") || callbacks == nullptr || callbacks->bytes < sizeof(Callbacks)) return 0;
  AnyFunction** core = nullptr;
  unsigned count = 0;
  // Like some tools, attaches to all modules or to none.
  for (std::uint32_t module = 6; module > 0; --module)
    if (callbacks->module(module, &core, &count) == 0 || count < 7) return 0;
  if (count < 16 || plays("marks")) return 1;
  *core[9] = reinterpret_cast<AnyFunction>(push);
  *core[11] = reinterpret_cast<AnyFunction>(pop);
  *core[14] = reinterpret_cast<AnyFunction>(name_thread);
  return 1;
}
