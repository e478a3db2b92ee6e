// How kernels come to a device of CUDA's runtime on the CPU: all with its context, or each at its
// first launch, as drivers do unless CUDA_MODULE_LOADING=EAGER is set. To load one a driver may
// synchronize the devices of the process.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

#include "tests/emulator/runtime/fake_machine.h"
#include "tests/emulator/runtime/fake_settings.h"
#include "tests/emulator/simt/simt.h"

namespace fake {
namespace {

// Where a driver may hang, or only says that a capture is invalid, the reason is on stderr.
cudaError_t refuse(const char* name, const std::string& why, cudaError_t code) {
  std::fprintf(stderr, "emulated device: %s is loaded %s\n", name, why.c_str());
  return fail(code);
}

// Work that waits for other ranks, from when a stream has it to its end.
class Waiting {
 public:
  explicit Waiting(int device) : device_(device) { add(1); }
  ~Waiting() { add(-1); }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

 private:
  void add(int count) const {
    const std::lock_guard lock(machine().loading_mutex);
    machine().waiting[device_] += count;
  }
  const int device_;
};

}  // namespace

bool loads_at_start() {
  static const bool at_start = [] {
    const char* text = std::getenv("CUDA_MODULE_LOADING");
    return text != nullptr && std::strcmp(text, "EAGER") == 0;
  }();
  return at_start;
}

cudaError_t load(const void* kernel, const char* name, EmulatedStream& stream) {
  if (loads_at_start()) return cudaSuccess;
  const std::lock_guard lock(machine().loading_mutex);
  if (machine().loaded.contains({stream.device, kernel})) return cudaSuccess;
  if (stream.capture) {
    stream.capture->valid = false;
    return refuse(name, "within a capture", cudaErrorStreamCaptureUnsupported);
  }
  for (const auto& [device, count] : machine().waiting)
    if (device != stream.device && count > 0)
      return refuse(name, "while device " + std::to_string(device) + " waits for another rank",
                    cudaErrorLaunchFailure);
  machine().loaded.insert({stream.device, kernel});
  return cudaSuccess;
}

}  // namespace fake

using namespace fake;

namespace simt {

int launch(void* stream, const void* kernel, const char* name, std::function<void()> work) {
  const cudaError_t loaded = load(kernel, name, stream_of(static_cast<cudaStream_t>(stream)));
  if (loaded == cudaSuccess) enqueue(stream, std::move(work));
  return loaded;
}

void enqueue_until_done(void* stream, std::function<bool()> work) {
  EmulatedStream& on = stream_of(static_cast<cudaStream_t>(stream));
  const auto begin = [device = on.device] { return std::make_shared<Waiting>(device); };
  // That of a graph waits in each of its replays.
  std::shared_ptr<Waiting> waiting = on.capture ? nullptr : begin();
  issue_work(on, [work = std::move(work), waiting = std::move(waiting), begin]() mutable {
    if (!waiting) waiting = begin();
    if (!work()) return false;
    waiting = nullptr;
    return true;
  });
}

}  // namespace simt
