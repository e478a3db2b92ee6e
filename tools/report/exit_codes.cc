// Error classes to exit codes, most derived first.
#include "tools/report/exit_codes.h"

#include <new>

#include "backends/backend_error.h"
#include "engine/core/cuda.h"
#include "engine/core/error.h"
#include "engine/train/replica_sync.h"
#include "io/base/io_error.h"
#include "io/base/visible_text.h"

namespace tools {
namespace {

template <class E>
bool is(const std::exception& error) {
  return dynamic_cast<const E*>(&error) != nullptr;
}

}  // namespace

int exit_code_of(const std::exception& error) {
  if (const auto* remote = dynamic_cast<const engine::RemoteError*>(&error))
    return remote->exit_code;
  if (is<UsageError>(error)) return kExitUsage;
  if (is<io::DataError>(error) || is<engine::InputError>(error)) return kExitBadData;
  if (is<io::CannotCreateError>(error)) return kExitCannotCreate;
  if (is<io::ConfigError>(error) || is<engine::ModelError>(error) ||
      is<engine::ShapeError>(error) || is<backends::ConfigurationError>(error))
    return kExitConfiguration;
  if (is<io::Error>(error)) return kExitIo;
  if (is<engine::DesyncError>(error) || is<backends::MismatchError>(error)) return kExitMismatch;
  if (is<engine::NonFiniteError>(error)) return kExitNonFinite;
  if (is<backends::AuthenticationError>(error)) return kExitAuthentication;
  if (is<backends::Error>(error) || is<engine::cuda::CudaError>(error) ||
      is<engine::MemoryError>(error) || is<std::bad_alloc>(error))
    return kExitUnavailable;
  return kExitInternal;
}

std::string text_of(const std::exception& error) {
  return is<std::bad_alloc>(error) ? "out of memory: an allocation failed"
                                   : base::visible_text(error.what());
}

}  // namespace tools
