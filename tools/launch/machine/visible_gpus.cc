// Counts GPUs by file names: a launcher starts before, and without, the driver. Only the driver
// knows which of them are usable.
#include "tools/launch/machine/visible_gpus.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>

#include "engine/core/cuda.h"
#include "io/base/text/text_parts.h"
#include "io/base/time/deadline.h"
#include "io/gpu/usable_devices.h"

namespace tools {

int visible_gpus() {
  if (const char* list = std::getenv("CUDA_VISIBLE_DEVICES")) {
    int count = 0;
    for (const std::string& part : base::split_text(list, ',')) {
      const std::string_view device = base::trimmed(part);
      if (device == "-1") break;  // hides itself and the following entries
      count += device.empty() ? 0 : 1;
    }
    return count;
  }
  int count = 0;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/dev", error)) {
    const std::string name = entry.path().filename().string();
    count += name.size() > 6 && name.starts_with("nvidia") &&
             name.find_first_not_of("0123456789", 6) == std::string::npos;
  }
  return count;
}

namespace {

constexpr auto kPatience = std::chrono::seconds(30);

// Returns true if there may be a device.
bool may_have_devices(int visible) {
#if defined(ENGINE_CUDA_EMULATED)
  if (std::getenv("ENGINE_EMULATED_GPUS") != nullptr) return true;
#endif
  return engine::cuda::kBuilt && visible > 0;
}

// Returns e.g. "0 2
// GPU 1 (...) is not used: ...", up to the end of the stream; nothing if the driver lists no
// device.
std::string answer_of_driver() {
  const int listed = base::cuda::listed_devices();
  if (listed == 0) return "";
  const base::cuda::UnusedDevices unused = base::cuda::unused_devices();
  std::string text;
  for (const int index : base::cuda::used_devices(listed, unused))
    text += (text.empty() ? "" : " ") + std::to_string(index);
  return text + "\n" + base::cuda::unused_text(unused);
}

// Asks through a child, which exits afterwards: "" if the answer did not come in time.
std::string ask_driver() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return "";
  const pid_t child = fork();
  if (child == 0) {
    std::string text;
    try {
      text = answer_of_driver();
    } catch (const std::exception&) {
      text.clear();
    }
    _exit(::write(ends[1], text.data(), text.size()) == static_cast<ssize_t>(text.size()) ? 0 : 1);
  }
  close(ends[1]);
  std::string text;
  const base::Deadline deadline = base::deadline_in(kPatience);
  for (bool ended = child < 0; !ended;) {
    pollfd poller{ends[0], POLLIN, 0};
    const int ready = poll(&poller, 1, base::milliseconds_left(deadline));
    if (ready < 0 && errno == EINTR) continue;
    char piece[4096];
    const ssize_t count = ready > 0 ? read(ends[0], piece, sizeof piece) : -1;
    if (count < 0) text.clear();
    if (count > 0) text.append(piece, static_cast<std::size_t>(count));
    ended = count <= 0;
  }
  close(ends[0]);
  if (child < 0) return "";
  // The child has ended, or hangs in the driver, where even this signal may have no effect.
  kill(child, SIGKILL);
  for (int i = 0; i < 1000 && waitpid(child, nullptr, WNOHANG) == 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return text;
}

}  // namespace

UsableGpus usable_gpus() {
  UsableGpus usable;
  const int visible = visible_gpus();
  const std::string answer = may_have_devices(visible) ? ask_driver() : "";
  if (const auto line = answer.find('\n'); line != std::string::npos) {
    usable.passed_over = answer.substr(line + 1);
    std::istringstream indices(answer.substr(0, line));
    for (int index = 0; indices >> index;) usable.indices.push_back(index);
    return usable;
  }
  for (int i = 0; i < visible; ++i) usable.indices.push_back(i);
  return usable;
}

}  // namespace tools
