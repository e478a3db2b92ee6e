// CUPTI delivers buffers of records on its own thread. Its functions and the beginnings of its
// records are declared here by its documented interface (CUPTI reference, 12.0 and newer): later
// versions of a record only grow at the end.
#include "tools/report/trace/device_activity.h"

#include <cxxabi.h>
#include <dlfcn.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "io/base/time/trace.h"

namespace tools {
namespace {

using Code = int;  // CUptiResult; 0 is success
enum ActivityKind : std::uint32_t { kCopy = 1, kFill = 2, kKernel = 3, kConcurrentKernel = 10 };

struct Copy {  // CUpti_ActivityMemcpy
  std::uint32_t kind;
  std::uint8_t direction, from, to, flags;
  std::uint64_t bytes, begin_ns, end_ns;
  std::uint32_t device, context, stream;
};
struct Fill {  // CUpti_ActivityMemset
  std::uint32_t kind, value;
  std::uint64_t bytes, begin_ns, end_ns;
  std::uint32_t device, context, stream;
};
struct Kernel {  // CUpti_ActivityKernel
  std::uint32_t kind;
  std::uint8_t cache, shared_memory;
  std::uint16_t registers;
  std::uint32_t partitioning[2];
  std::uint64_t begin_ns, end_ns, completed_ns;
  std::uint32_t device, context, stream;
  std::int32_t grid[3], block[3], shared_bytes[2];
  std::uint32_t local_bytes[2], correlation;
  std::int64_t grid_id;
  const char* name;
};
static_assert(offsetof(Copy, stream) == 40 && offsetof(Fill, stream) == 40 &&
              offsetof(Kernel, name) == 104);

constexpr std::size_t kBufferBytes = std::size_t{1} << 20;
constexpr std::size_t kMost = std::size_t{1} << 20;  // records kept; later ones are dropped

const char* direction_text(std::uint8_t direction) {
  switch (direction) {
    case 1:
      return "copy to device";
    case 2:
      return "copy to host";
    case 8:
      return "copy on device";
    case 10:
      return "copy between devices";
    default:
      return "copy";
  }
}

// One per process, and never unloaded, because CUPTI's threads may still run when the process ends.
class Library {
 public:
  static Library& instance() {
    static auto* library = new Library;
    return *library;
  }

  std::string begin() {
    const std::lock_guard lock(use_);
    if (file_ == nullptr)
      if (std::string problem = load(); !problem.empty()) return problem;
    if (users_ == 0)
      for (const ActivityKind kind : {kConcurrentKernel, kCopy, kFill})
        if (const Code code = enable_(kind); code != 0) {
          for (const ActivityKind enabled : {kConcurrentKernel, kCopy, kFill}) disable_(enabled);
          return "CUPTI cannot record: " + text(code);
        }
    ++users_;
    return "";
  }

  void end() {
    const std::lock_guard lock(use_);
    if (--users_ > 0) return;
    for (const ActivityKind kind : {kConcurrentKernel, kCopy, kFill}) disable_(kind);
    flush_(0);
    const std::lock_guard records_lock(records_mutex_);
    records_.clear();
    records_.shrink_to_fit();
  }

  std::vector<DeviceSpan> between(std::uint32_t device, std::int64_t begin_ns,
                                  std::int64_t end_ns) {
    const std::lock_guard lock(use_);
    flush_(0);
    std::vector<DeviceSpan> spans;
    const std::lock_guard records_lock(records_mutex_);
    for (const Record& r : records_)
      if (r.device == device && r.begin_ns >= begin_ns && r.end_ns <= end_ns)
        spans.push_back({.name = r.is_kernel ? kernel_name(r.name) : r.name,
                         .device = device,
                         .stream = r.stream,
                         .begin_ns = r.begin_ns,
                         .end_ns = r.end_ns,
                         .bytes = r.bytes});
    std::ranges::stable_sort(spans, {}, &DeviceSpan::begin_ns);
    return spans;
  }

 private:
  struct Record {
    const char* name;
    std::uint32_t device, stream;
    std::int64_t begin_ns, end_ns, bytes;
    bool is_kernel;
  };

  std::string load() {
    const char* chosen = std::getenv("ENGINE_CUPTI_LIBRARY");
    std::vector<std::string> names = {"libcupti.so.13", "libcupti.so.12", "libcupti.so",
                                      "/usr/local/cuda/lib64/libcupti.so",
                                      "/usr/local/cuda/extras/CUPTI/lib64/libcupti.so"};
    if (chosen != nullptr && *chosen != '\0') names = {chosen};
    std::string problem;
    for (const std::string& name : names) {
      file_ = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
      if (file_ != nullptr) break;
      if (problem.empty()) problem = dlerror();
    }
    if (file_ == nullptr)
      return "CUPTI cannot be loaded: " + problem + " (ENGINE_CUPTI_LIBRARY names its file)";
    problem = set_up();
    if (!problem.empty()) file_ = nullptr;
    return problem;
  }

  std::string set_up() {
    Code (*use_clock)(std::uint64_t(*)()) = nullptr;
    Code (*use_buffers)(void (*)(std::uint8_t**, std::size_t*, std::size_t*),
                        void (*)(void*, std::uint32_t, std::uint8_t*, std::size_t, std::size_t)) =
        nullptr;
    for (const char* missing :
         {find(use_clock, "cuptiActivityRegisterTimestampCallback"),
          find(use_buffers, "cuptiActivityRegisterCallbacks"), find(enable_, "cuptiActivityEnable"),
          find(disable_, "cuptiActivityDisable"), find(flush_, "cuptiActivityFlushAll"),
          find(next_, "cuptiActivityGetNextRecord"), find(text_, "cuptiGetResultString")})
      if (missing != nullptr) return std::string("this CUPTI has no ") + missing;
    if (const Code code = use_clock(&clock); code != 0)
      return "CUPTI takes no other clock: " + text(code);
    if (const Code code = use_buffers(&give_buffer, &take_buffer); code != 0)
      return "CUPTI takes no buffers: " + text(code);
    return "";
  }

  // Returns the name if there is no such function.
  template <class F>
  const char* find(F*& function, const char* symbol) {
    function = reinterpret_cast<F*>(dlsym(file_, symbol));
    return function == nullptr ? symbol : nullptr;
  }

  std::string text(Code code) const {
    const char* text = nullptr;
    return text_(code, &text) == 0 && text != nullptr ? text : "error " + std::to_string(code);
  }

  static std::uint64_t clock() { return static_cast<std::uint64_t>(base::Tracer::now_ns()); }

  // CUPTI records nothing if it gets no buffer.
  static void give_buffer(std::uint8_t** buffer, std::size_t* bytes, std::size_t* max_records) {
    *buffer = static_cast<std::uint8_t*>(std::aligned_alloc(8, kBufferBytes));
    *bytes = *buffer == nullptr ? 0 : kBufferBytes;
    *max_records = 0;  // as many as fit
  }

  static void take_buffer(void*, std::uint32_t, std::uint8_t* buffer, std::size_t,
                          std::size_t filled) {
    const std::unique_ptr<std::uint8_t, decltype(&std::free)> owner(buffer, &std::free);
    Library& library = instance();
    const std::lock_guard lock(library.records_mutex_);
    void* record = nullptr;
    while (filled > 0 && library.next_(buffer, filled, &record) == 0) library.keep(record);
  }

  void keep(const void* record) {
    if (records_.size() >= kMost) return;
    const auto add = [&](const auto& r, const char* name, std::int64_t bytes, bool is_kernel) {
      records_.push_back({.name = name,
                          .device = r.device,
                          .stream = r.stream,
                          .begin_ns = static_cast<std::int64_t>(r.begin_ns),
                          .end_ns = static_cast<std::int64_t>(r.end_ns),
                          .bytes = bytes,
                          .is_kernel = is_kernel});
    };
    switch (*static_cast<const std::uint32_t*>(record)) {
      case kCopy: {
        const auto& copy = *static_cast<const Copy*>(record);
        return add(copy, direction_text(copy.direction), static_cast<std::int64_t>(copy.bytes),
                   false);
      }
      case kFill: {
        const auto& fill = *static_cast<const Fill*>(record);
        return add(fill, "fill", static_cast<std::int64_t>(fill.bytes), false);
      }
      case kKernel:
      case kConcurrentKernel: {
        const auto& kernel = *static_cast<const Kernel*>(record);
        return add(kernel,
                   symbols_.emplace(kernel.name == nullptr ? "" : kernel.name).first->c_str(), -1,
                   true);
      }
      default:
        return;
    }
  }

  std::mutex use_;  // one call of CUPTI at a time; guards the following
  void* file_ = nullptr;
  int users_ = 0;
  Code (*enable_)(std::uint32_t) = nullptr;
  Code (*disable_)(std::uint32_t) = nullptr;
  Code (*flush_)(std::uint32_t) = nullptr;
  Code (*next_)(std::uint8_t*, std::size_t, void**) = nullptr;
  Code (*text_)(Code, const char**) = nullptr;

  std::mutex records_mutex_;  // acquired last: CUPTI's thread needs it during a flush
  std::vector<Record> records_;
  std::set<std::string, std::less<>> symbols_;  // elements have stable addresses
};

}  // namespace

DeviceActivity::DeviceActivity() : missing_(Library::instance().begin()) {}

DeviceActivity::~DeviceActivity() {
  if (missing_.empty()) Library::instance().end();
}

std::vector<DeviceSpan> DeviceActivity::between(std::uint32_t device, std::int64_t begin_ns,
                                                std::int64_t end_ns) const {
  if (!missing_.empty()) return {};
  return Library::instance().between(device, begin_ns, end_ns);
}

std::string kernel_name(const char* symbol) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> demangled(
      abi::__cxa_demangle(symbol, nullptr, nullptr, &status), &std::free);
  if (status != 0) return symbol;
  std::string name = demangled.get();
  constexpr std::string_view kNoName = "(anonymous namespace)::";
  for (std::size_t at; (at = name.find(kNoName)) != std::string::npos;)
    name.erase(at, kNoName.size());
  name.erase(std::min(name.find_first_of("<("), name.size()));
  return name.substr(name.rfind(' ') + 1);  // npos + 1 is 0
}

}  // namespace tools
