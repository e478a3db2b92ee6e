// Maps error classes to exit codes, most derived first.
#include "tools/report/output/exit_codes.h"

#include <sys/resource.h>

#include <cerrno>
#include <filesystem>
#include <new>
#include <system_error>

#include "backends/backend_error.h"
#include "engine/core/cuda.h"
#include "engine/core/error.h"
#include "engine/train/replicas/replica_sync.h"
#include "io/base/files/io_error.h"
#include "io/base/files/system_error_text.h"
#include "io/base/text/escape_text.h"

namespace tools {
namespace {

// Returns true if the error is one of these.
template <class... Errors>
bool is(const std::exception& error) {
  return ((dynamic_cast<const Errors*>(&error) != nullptr) || ...);
}

bool has_memory_limit() {
  rlimit limit{};
  return getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
}

// Returns the code of an error of the standard library or a system call: a limit on memory,
// processes or open files, or an unusable file.
int code_of_system_error(const std::error_code& error) {
  for (const std::errc limit :
       {std::errc::resource_unavailable_try_again, std::errc::not_enough_memory,
        std::errc::too_many_files_open, std::errc::too_many_files_open_in_system,
        std::errc::no_buffer_space})
    if (error == limit) return kExitUnavailable;
  return kExitIo;
}

// std::thread reports only "Resource temporarily unavailable".
bool is_of_thread(const std::exception& error) {
  const auto* system = dynamic_cast<const std::system_error*>(&error);
  return system != nullptr && !is<std::filesystem::filesystem_error>(error) &&
         system->code() == std::errc::resource_unavailable_try_again &&
         system->what() == system->code().message();
}

// The limit that a call may have met whose error says no more than "cannot fork worker 0: ...".
std::string limit_of(const std::exception& error) {
  if (is<std::bad_alloc>(error)) return base::limit_text(ENOMEM);
  const auto* system = dynamic_cast<const std::system_error*>(&error);
  if (system == nullptr || is<std::filesystem::filesystem_error>(error)) return "";
  if (system->code() == std::errc::resource_unavailable_try_again)
    return "; raise the limit on processes (ulimit -u, or the container's)";
  return base::limit_text(system->code().value());
}

constexpr ExitCode kExitCodes[] = {
    {kExitOk, "success"},
    {kExitDifferent, "verify, doctor, bench comm --baseline: a difference was found"},
    {kExitUsage, "invalid command line; verify: no verdict"},
    {kExitBadData, "bad data: a file is missing, truncated, damaged, or not what it should be"},
    {kExitUnavailable,
     "a peer or the rendezvous cannot be reached; not enough memory, open files or processes; a "
     "device that fails"},
    {kExitInternal, "an error inside the program"},
    {kExitCannotCreate, "output cannot be created"},
    {kExitIo, "reading or writing failed"},
    {kExitPreempted, "preempted: the state is saved, run again"},
    {kExitMismatch, "ranks, replicas or their results differ where they must not"},
    {kExitAuthentication, "authentication with the job's secret failed"},
    {kExitConfiguration, "invalid configuration: a value, address, backend or model"},
    {kExitNonFinite, "the training has diverged: loss, gradient or a parameter is NaN or infinite"},
    {kExitLeft, "this rank was asked to leave an elastic job, which continues"},
};

}  // namespace

std::span<const ExitCode> exit_codes() { return kExitCodes; }

int exit_code_of(const std::exception& error) {
  if (const auto* remote = dynamic_cast<const engine::RemoteError*>(&error))
    return remote->exit_code;
  if (is<UsageError>(error)) return kExitUsage;
  if (is<io::DataError, engine::InputError>(error)) return kExitBadData;
  if (is<io::CannotCreateError>(error)) return kExitCannotCreate;
  if (is<io::ConfigError, engine::ModelError, engine::ShapeError, backends::ConfigurationError>(
          error))
    return kExitConfiguration;
  if (is<io::LimitError>(error)) return kExitUnavailable;
  if (is<io::Error>(error)) return kExitIo;
  if (is<engine::DesyncError, backends::MismatchError>(error)) return kExitMismatch;
  if (is<engine::NonFiniteError>(error)) return kExitNonFinite;
  if (is<backends::AuthenticationError>(error)) return kExitAuthentication;
  if (const auto* stopped = dynamic_cast<const StoppedError*>(&error)) return 128 + stopped->signal;
  if (is<backends::Error, engine::cuda::CudaError, engine::MemoryError, std::bad_alloc>(error))
    return kExitUnavailable;
  if (const auto* system = dynamic_cast<const std::system_error*>(&error))
    return code_of_system_error(system->code());
  return kExitInternal;
}

namespace {

// The library's own text has the name of a function.
std::string text_of_file_error(const std::filesystem::filesystem_error& error) {
  std::string text = error.path1().string();
  if (!error.path2().empty()) text += " -> " + error.path2().string();
  return (text.empty() ? "" : text + ": ") + base::system_error_text(error.code().value());
}

}  // namespace

std::string text_of(const std::exception& error) {
  if (const auto* of_file = dynamic_cast<const std::filesystem::filesystem_error*>(&error))
    return base::escape_text(text_of_file_error(*of_file));
  if (is_of_thread(error))
    return std::string("cannot start a thread: ") + error.what() + "; raise the limit on " +
           (has_memory_limit() ? "memory (ulimit -v) or " : "") +
           "processes (ulimit -u, or the container's), or lower --threads";
  const std::string text = is<std::bad_alloc>(error) ? "out of memory: an allocation failed"
                                                     : base::escape_text(error.what());
  return text + limit_of(error);
}

}  // namespace tools
