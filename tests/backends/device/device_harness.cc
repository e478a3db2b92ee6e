// Ranks as threads and as processes, each on its device.
#include "tests/backends/device/device_harness.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <stdexcept>

#include "backends/backend_error.h"
#include "tests/backends/group_harness.h"

namespace device_harness {
namespace {

void expect(cudaError_t code) {
  if (code != cudaSuccess) throw std::runtime_error(cudaGetErrorString(code));
}

// Runs `body` in a forked process; the pipe passes its result to the parent.
struct Child {
  pid_t pid = -1;
  int out = -1;
};
Child start(const std::function<std::string()>& body) {
  int ends[2];
  if (pipe(ends) != 0) throw std::runtime_error("pipe");
  const pid_t pid = fork();
  if (pid == 0) {
    alarm(static_cast<unsigned>(test_support::deadline_ms(60'000) / 1000));
    close(ends[0]);
    const std::string text = body();
    [[maybe_unused]] const ssize_t wrote = write(ends[1], text.data(), text.size());
    _exit(0);
  }
  close(ends[1]);
  return {pid, ends[0]};
}
std::string finish(const Child& child) {
  std::string text;
  char piece[4096];
  for (ssize_t n = 0; (n = read(child.out, piece, sizeof piece)) > 0;)
    text.append(piece, static_cast<std::size_t>(n));
  close(child.out);
  int status = 0;
  waitpid(child.pid, &status, 0);
  return text.empty() ? "ended with status " + std::to_string(status) : text;
}

void run_in_group(std::unique_ptr<backends::Group> group, const Body& body) {
  try {
    body(*group);
    group->leave();
  } catch (...) {
    group.reset();  // at once, so that the others are told
    throw;
  }
}

void run_rank(int rank, int world_size, const RankOptions& options,
              const group_harness::Listener& listener, const Body& body) {
  expect(cudaSetDevice(options.one_device ? 0 : rank));
  backends::GroupOptions o = group_harness::options_for(rank, world_size, listener.port);
  o.timeout_ms = options.timeout_ms;
  o.heartbeat_ms = test_support::deadline_ms(300);
  o.notice = options.notice;
  if (rank == 0) o.listen.fd = listener.fd;
  run_in_group(backends::join_group(o), body);
}

}  // namespace

std::string in_child(const std::function<std::string()>& body) { return finish(start(body)); }

std::string lacking(int ranks) {
  const std::string count = in_child([] {
    int devices = 0;
    return std::to_string(cudaGetDeviceCount(&devices) == cudaSuccess ? devices : 0);
  });
  return std::atoi(count.c_str()) >= ranks
             ? ""
             : "needs " + std::to_string(ranks) + " GPUs, this machine has " + count;
}

DeviceBytes::DeviceBytes(const Bytes& bytes) : bytes_(bytes.size()) {
  expect(cudaMalloc(&data_, bytes.empty() ? 1 : bytes.size()));
  copy_to_device(data_, bytes);
}
DeviceBytes::~DeviceBytes() { cudaFree(data_); }
Bytes DeviceBytes::read() const {
  Bytes bytes(bytes_);
  if (bytes_ > 0) expect(cudaMemcpy(bytes.data(), data_, bytes_, cudaMemcpyDeviceToHost));
  return bytes;
}

Stream::Stream() { expect(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }
Stream::~Stream() { cudaStreamDestroy(stream_); }

void copy_to_device(void* to, const Bytes& bytes) {
  if (bytes.empty()) return;
  expect(cudaMemcpy(to, bytes.data(), bytes.size(), cudaMemcpyHostToDevice));
  expect(cudaDeviceSynchronize());  // the last part of pageable memory may be under way, and other
                                    // streams do not wait for it
}

std::vector<std::string> run_threads(int world_size, const RankOptions& options, const Body& body) {
  if (options.inproc) {
    auto groups = backends::make_inproc_groups(world_size, options.timeout_ms, options.notice);
    return group_harness::outcomes(world_size, [&](int rank) {
      expect(cudaSetDevice(options.one_device ? 0 : rank));
      run_in_group(std::move(groups[static_cast<std::size_t>(rank)]), body);
    });
  }
  const group_harness::Listener listener =
      world_size > 1 ? group_harness::open_listener() : group_harness::Listener{};
  return group_harness::outcomes(
      world_size, [&](int rank) { run_rank(rank, world_size, options, listener, body); });
}

std::vector<std::string> run_forked(int world_size, const RankOptions& options, const Body& body) {
  const group_harness::Listener listener =
      world_size > 1 ? group_harness::open_listener() : group_harness::Listener{};
  std::vector<Child> children;
  for (int rank = 0; rank < world_size; ++rank) {
    children.push_back(start([&]() -> std::string {
      std::string outcome;
      // outcomes() sorts what is thrown into kinds.
      outcome = group_harness::outcomes(
          1, [&](int) { run_rank(rank, world_size, options, listener, body); })[0];
      return outcome.empty() ? "ok" : outcome;
    }));
  }
  if (listener.fd >= 0) close(listener.fd);
  std::vector<std::string> answers;
  for (const Child& child : children) answers.push_back(finish(child));
  return answers;
}

Setting::Setting(const char* name, const std::string& value) : name_(name) {
  setenv(name, value.c_str(), 1);
}
Setting::~Setting() { unsetenv(name_.c_str()); }

namespace {
// The emulated GPU shows four devices. Set before the first CUDA call.
[[maybe_unused]] const int kDevices = setenv("ENGINE_EMULATED_GPUS", "4", 0);
}  // namespace

}  // namespace device_harness
