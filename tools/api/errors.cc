// Maps exit codes, which every error of the library has, to exceptions.
#include "engine/errors.h"

#include <new>

#include "backends/backend_error.h"
#include "engine/train/replicas/replica_sync.h"
#include "tools/api/translated.h"
#include "tools/report/output/exit_codes.h"
#include "tools/report/output/run_log.h"

namespace engine::api {

Error::Error(int exit_code, const std::string& what)
    : std::runtime_error(what), exit_code_(exit_code) {}
// Defined here, so that a program and its libraries share one type of each.
Error::~Error() = default;
ConfigurationError::~ConfigurationError() = default;
DataError::~DataError() = default;
FileError::~FileError() = default;
PeerError::~PeerError() = default;
CancelledError::~CancelledError() = default;
ResourceError::~ResourceError() = default;
MismatchError::~MismatchError() = default;
AuthenticationError::~AuthenticationError() = default;
NonFiniteError::~NonFiniteError() = default;
InternalError::~InternalError() = default;

CallbackFailure::CallbackFailure(std::exception_ptr thrown)
    : cause(std::move(thrown)),  // NOLINT(bugprone-throw-keyword-missing): stored for later
      text("a callback has failed") {
  try {
    std::rethrow_exception(cause);
  } catch (const std::exception& error) {
    text = error.what();
  } catch (...) {
    return;  // no error with a text
  }
}

namespace {

[[noreturn]] void throw_by_code(int code, const std::string& text, bool of_peer) {
  switch (code) {
    case tools::kExitUsage:
    case tools::kExitConfiguration:
      throw ConfigurationError(tools::kExitConfiguration, text);
    case tools::kExitBadData:
      throw DataError(code, text);
    case tools::kExitCannotCreate:
    case tools::kExitIo:
      throw FileError(code, text);
    case tools::kExitUnavailable:
      if (of_peer) throw PeerError(code, text);
      throw ResourceError(code, text);
    case tools::kExitMismatch:
      throw MismatchError(code, text);
    case tools::kExitAuthentication:
      throw AuthenticationError(code, text);
    case tools::kExitNonFinite:
      throw NonFiniteError(code, text);
    default:
      throw InternalError(tools::kExitInternal, text);
  }
}

}  // namespace

void rethrow_translated() {
  try {
    throw;
  } catch (const Error&) {
    throw;
  } catch (const CallbackFailure& failure) {
    std::rethrow_exception(failure.cause);
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const backends::CancelledError& error) {
    throw CancelledError(tools::kExitUnavailable, tools::text_of(error));
  } catch (const std::exception& error) {
    const bool of_peer = dynamic_cast<const backends::Error*>(&error) != nullptr ||
                         dynamic_cast<const engine::RemoteError*>(&error) != nullptr;
    throw_by_code(tools::exit_code_of(error), tools::text_of(error), of_peer);
  }
}

void set_notice_handler(std::function<void(const std::string&)> handler) {
  tools::set_notice_handler(std::move(handler));
}

}  // namespace engine::api
