// Replaces the CUDA runtime in a build without it.
#include "io/gpu/cuda_runtime.h"
#include "io/gpu/graph_event.h"
#include "io/gpu/usable_devices.h"

namespace base::cuda {
namespace {

constexpr const char* kNone =
    "this build has no CUDA: build with ENGINE_WITH_CUDA=ON where nvcc 12.4 or newer is installed";
[[noreturn]] void refuse() { throw CudaError(kNone); }

}  // namespace

void check(int, const char*, const char*) { refuse(); }
void check_launch(int, const char*, void*) { refuse(); }
bool waits_for_kernels() { return false; }
void load_kernels_at_start() {}
void block_in_waits(bool) {}
bool blocks_in_waits() { return false; }
std::string missing() { return "this build has no CUDA"; }
int device_count() { return 0; }
int listed_devices() { return 0; }
UnusedDevices unused_devices() { return {}; }
std::string code_text(int) { return ""; }
std::string translation_notice(int) { return ""; }
DeviceInfo device_info(int) { refuse(); }
std::string versions() { return "none"; }
void use_device(int) { refuse(); }
int current_device() { refuse(); }
int processor_count() { refuse(); }
int max_processors() { return 0; }
std::string bus_address(int) { refuse(); }
bool is_device_memory(const void*) { refuse(); }
std::pair<std::size_t, std::size_t> free_and_total_memory() { refuse(); }
void synchronize_device() { refuse(); }
void synchronize_stream(void*) { refuse(); }
bool is_idle(void*) { refuse(); }
bool is_capturing(void*) { refuse(); }
void* allocate(std::size_t) { refuse(); }
void release(void*) noexcept {}
void* allocate_pinned(std::size_t) { refuse(); }
void release_pinned(void*) noexcept {}
void pin(void*, std::size_t) { refuse(); }
void unpin(void*) noexcept {}
Stream::Stream(Priority) { refuse(); }
Stream::~Stream() = default;
void Stream::synchronize() const {}
Event::Event(bool) { refuse(); }
Event::~Event() = default;
void Event::record(void*) {}
void Event::make_wait(void*) const {}
void Event::synchronize() const {}
bool Event::done() const { return true; }
double Event::seconds_since(const Event&) const { return 0; }
void record_in_graph(Event&, void*) {}
void copy_async(void*, const void*, std::size_t, void*) { refuse(); }
void set_bytes_async(void*, int, std::size_t, void*) { refuse(); }
StepGraph::~StepGraph() = default;
void StepGraph::begin_capture(void*) { refuse(); }
StepGraph StepGraph::end_capture(void*) { refuse(); }
void StepGraph::drop_capture(void*) noexcept {}
void StepGraph::launch(void*) const {}

}  // namespace base::cuda
