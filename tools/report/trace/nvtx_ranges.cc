// A tool is attached by the protocol of NVTX 3's headers (nvtxDetail/nvtxTypes.h), which not every
// build has: the library's InitializeInjectionNvtx2() asks for tables of places of functions, and
// stores its own functions there.
#include "tools/report/trace/nvtx_ranges.h"

#include <dlfcn.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>

namespace tools {
namespace {

using AnyFunction = void (*)();
enum ExportTable : std::uint32_t { kCallbacks = 1, kVersion = 3 };
// Numbers in the table of module "core".
enum CoreFunction : std::size_t { kRangePush = 9, kRangePop = 11, kNameThread = 14 };
constexpr std::size_t kMaxFunctions = 16;  // of a module
constexpr std::uint32_t kNvtxVersion = 3;

struct Module {
  unsigned functions;  // including number 0, which is none
  std::array<AnyFunction, kMaxFunctions> function{};
  std::array<AnyFunction*, kMaxFunctions + 1> places{};  // up to a null
};

// By the modules' numbers: core, CUDA, OpenCL, CUDA runtime, core 2, sync. This program calls
// functions of the first only, but tools may require all.
struct Modules {
  Modules() {
    for (Module& module : all)
      for (std::size_t i = 1; i < module.functions; ++i) module.places[i] = &module.function[i];
  }
  std::array<Module, 7> all{{{0}, {16}, {9}, {15}, {7}, {16}, {7}}};
};

Modules& modules() {
  static auto* modules = new Modules;  // threads of the tool may outlive main()
  return *modules;
}

int give_module(std::uint32_t number, AnyFunction*** places, unsigned* count) {
  if (number == 0 || number >= modules().all.size()) return 0;
  Module& module = modules().all[number];
  if (places != nullptr) *places = module.places.data();
  if (count != nullptr) *count = module.functions;
  return 1;
}

void take_version(std::uint32_t) {}

const void* give_table(std::uint32_t table) {
  struct Callbacks {  // NvtxExportTableCallbacks
    std::size_t bytes = sizeof(Callbacks);
    int (*module)(std::uint32_t, AnyFunction***, unsigned*) = give_module;
  };
  struct Version {  // NvtxExportTableVersionInfo
    std::size_t bytes = sizeof(Version);
    std::uint32_t version = kNvtxVersion, reserved = 0;
    void (*take)(std::uint32_t) = take_version;
  };
  static constexpr Callbacks kCallbackTable;
  static constexpr Version kVersionTable;
  switch (table) {
    case kCallbacks:
      return &kCallbackTable;
    case kVersion:
      return &kVersionTable;
    default:
      return nullptr;
  }
}

template <class F>
F* core_function(CoreFunction number) {
  return reinterpret_cast<F*>(modules().all[1].function[number]);
}

void begin_range(const char* name) noexcept { core_function<int(const char*)>(kRangePush)(name); }
void end_range() noexcept { core_function<int()>(kRangePop)(); }
void name_thread(const char* name) noexcept {
  if (auto* function = core_function<void(std::uint32_t, const char*)>(kNameThread))
    function(static_cast<std::uint32_t>(syscall(SYS_gettid)), name);
}

constexpr base::SpanListener kRanges{
    .begin = begin_range, .end = end_range, .name_thread = name_thread};

// Returns why there is no tool; "": there is one.
std::string attach(const char* path) {
  using Initialize = int(const void* (*)(std::uint32_t));
  void* const library = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
  if (library == nullptr) return dlerror();
  const auto initialize = reinterpret_cast<Initialize*>(dlsym(library, "InitializeInjectionNvtx2"));
  if (initialize == nullptr) return std::string(path) + " has no InitializeInjectionNvtx2()";
  if (initialize(give_table) == 0) return std::string(path) + " does not start";
  const auto& core = modules().all[1].function;
  return core[kRangePush] != nullptr && core[kRangePop] != nullptr
             ? ""
             : std::string(path) + " does not take ranges";
}

NvtxTool load() {
  const char* path = std::getenv("NVTX_INJECTION64_PATH");
  if (path == nullptr || *path == '\0') return {};
  const std::string problem = attach(path);
  if (problem.empty()) return {.ranges = &kRanges};
  return {.missing = "no NVTX ranges, NVTX_INJECTION64_PATH: " + problem};
}

}  // namespace

const NvtxTool& nvtx_tool() {
  static const auto* tool = new NvtxTool(load());
  return *tool;
}

NvtxRanges::NvtxRanges(const base::SpanListener& ranges)
    : tracer_(1, &ranges), thread_(&tracer_, "training") {}

}  // namespace tools
