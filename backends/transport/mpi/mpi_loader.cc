// Finds libmpi and identifies its ABI.
#include "backends/transport/mpi/mpi_loader.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "backends/transport/mpi/mpi_backend.h"
#include "backends/transport/mpi/mpi_calls.h"
#include "io/base/machine/environment.h"
#include "io/base/text/escape_text.h"
#include "io/base/text/text_parts.h"

namespace backends {
namespace {

constexpr const char* kNameVariable = "ENGINE_MPI_LIBRARY";

enum class MpiAbi { kOpenMpi, kMpich, kStandard };

// The values of mpi.h of MPICH 4 and 5. Libraries of its ABI initiative (Intel MPI, MVAPICH, Cray
// MPICH) have the same.
constexpr MpiConstants<int> kMpich{.world = 0x44000000,
                                   .byte = 0x4c00010d,
                                   .errors_return = 0x54000001,
                                   .any_source = -2,
                                   .any_tag = -1,
                                   .thread_serialized = 2};

// The values of the standard ABI, MPI 5.0, chapter 20.
MpiConstants<void*> standard_constants() {
  const auto handle = [](std::uintptr_t value) {
    return reinterpret_cast<void*>(value);  // NOLINT(performance-no-int-to-ptr): the ABI's numbers
  };
  return {.world = handle(0x101),
          .byte = handle(0x247),
          .errors_return = handle(0x143),
          .any_source = -1,
          .any_tag = -2,
          .thread_serialized = 2048};
}

// Open MPI's handles are the addresses of variables.
MpiConstants<void*> open_mpi_constants(void* library) {
  return {.world = dlsym(library, "ompi_mpi_comm_world"),
          .byte = dlsym(library, "ompi_mpi_byte"),
          .errors_return = dlsym(library, "ompi_mpi_errors_return"),
          .any_source = -1,
          .any_tag = -1,
          .thread_serialized = 2};
}

bool is_mpich_launcher(const MpiVariables& variables) {
  constexpr const char* kNames[] = {
      "PMI_RANK",           "PMI_FD", "PMI_SIZE", "MPI_LOCALNRANKS", "MV2_COMM_WORLD_SIZE",
      "MVP_COMM_WORLD_SIZE"};
  return std::ranges::any_of(kNames, [&](const char* name) { return !variables(name).empty(); });
}

// Open MPI's components need the library's symbols, hence RTLD_GLOBAL. nullptr: there is no such
// file.
void* open_mpi_file(const std::string& name, bool is_required) {
  if (void* library = dlopen(name.c_str(), RTLD_NOW | RTLD_GLOBAL)) return library;
  const std::string why = dlerror();
  if (is_required)
    throw ConfigurationError("cannot load " + std::string(kNameVariable) + " (" + why + ")");
  // A library that exists but lacks one of its own is not passed over.
  if (why.starts_with(name + ": cannot open shared object file")) return nullptr;
  throw ConfigurationError("cannot load the MPI library " + name + " (" + why + "); " +
                           kNameVariable + " names another one");
}

std::string place_of(void* function, const std::string& name) {
  Dl_info where{};
  return dladdr(function, &where) != 0 && where.dli_fname != nullptr ? where.dli_fname : name;
}

template <typename Function>
void find_mpi_function(void* library, const std::string& path, const char* name,
                       Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (function == nullptr)
    throw ConfigurationError(path + " is not a library of MPI 3 or later: it has no function " +
                             name);
}

// Returns the first line of the version text, with single spaces.
std::string version_line(const std::string& text) {
  std::string line;
  for (const char c : text.substr(0, text.find_first_of("\n,"))) {
    const char shown = c == '\t' ? ' ' : c;
    if (shown != ' ' || (!line.empty() && line.back() != ' ')) line += shown;
  }
  return base::escape_text(line);
}

bool implements_standard_abi(void* library) {
  const auto get_version =
      reinterpret_cast<int (*)(int*, int*)>(dlsym(library, "MPI_Abi_get_version"));
  int major = -1, minor = -1;  // remain -1 in a library with another ABI
  return get_version != nullptr && get_version(&major, &minor) == 0 && major == 1;
}

MpiAbi identify_abi(void* library, const std::string& path, const std::string& version) {
  if (implements_standard_abi(library)) return MpiAbi::kStandard;
  const MpiConstants<void*> open_mpi = open_mpi_constants(library);
  if (open_mpi.world != nullptr && open_mpi.byte != nullptr && open_mpi.errors_return != nullptr)
    return MpiAbi::kOpenMpi;
  for (const std::string_view family : {"MPICH", "MVAPICH", "Intel(R) MPI"}) {
    if (version.find(family) != std::string::npos) return MpiAbi::kMpich;
  }
  throw ConfigurationError("the ABI of the MPI library " + path + " (\"" + version +
                           "\") is unknown: expected Open MPI, MPICH or a library with its ABI "
                           "(Intel MPI, MVAPICH, Cray MPICH), or the standard ABI of MPI 5");
}

template <typename Handle>
std::unique_ptr<MpiLibrary> make_calls(void* library, const std::string& path,
                                       const MpiConstants<Handle>& constants) {
  MpiFunctions<Handle> functions;
  functions.find_all(
      [&](const char* name, auto& function) { find_mpi_function(library, path, name, function); });
  return std::make_unique<MpiCalls<Handle>>(functions, constants);
}

std::unique_ptr<MpiLibrary> describe_calls(void* library, const std::string& name) {
  int (*get_version)(char*, int*) = nullptr;
  find_mpi_function(library, name, "MPI_Get_library_version", get_version);
  const std::string path = place_of(reinterpret_cast<void*>(get_version), name);
  char text[8192 + 1] = {};  // MPI_MAX_LIBRARY_VERSION_STRING: 256 in Open MPI, else 8192
  int length = 0;
  get_version(text, &length);
  const std::string version = version_line(text);
  std::unique_ptr<MpiLibrary> result;
  switch (identify_abi(library, path, version)) {
    case MpiAbi::kOpenMpi:
      result = make_calls(library, path, open_mpi_constants(library));
      break;
    case MpiAbi::kMpich:
      result = make_calls(library, path, kMpich);
      break;
    case MpiAbi::kStandard:
      result = make_calls(library, path, standard_constants());
      break;
  }
  result->path = path;
  result->version = version;
  return result;
}

}  // namespace

std::vector<std::string> mpi_library_names(const MpiVariables& variables) {
  // libmpich.so.12 is Debian's name of MPICH. libmpi.so comes last: it may be of any MPI.
  if (variables("OMPI_COMM_WORLD_SIZE").empty() && is_mpich_launcher(variables))
    return {"libmpi.so.12", "libmpich.so.12", "libmpi_abi.so.1", "libmpi.so.40", "libmpi.so"};
  return {"libmpi.so.40", "libmpi.so.12", "libmpich.so.12", "libmpi_abi.so.1", "libmpi.so"};
}

bool has_mpi_launcher(const MpiVariables& variables) {
  // PMIx: srun --mpi=pmix, and launchers of Open MPI 5. ALPS: aprun of Cray.
  return is_mpich_launcher(variables) || !variables("OMPI_COMM_WORLD_SIZE").empty() ||
         !variables("PMIX_RANK").empty() || !variables("PMI_CONTROL_PORT").empty() ||
         !variables("ALPS_APP_PE").empty();
}

std::unique_ptr<MpiLibrary> load_mpi_library(const MpiVariables& variables,
                                             const std::vector<std::string>& names) {
  if (const std::string named = variables(kNameVariable); !named.empty())
    return describe_calls(open_mpi_file(named, true), named);
  for (const std::string& name : names) {
    if (void* library = open_mpi_file(name, false)) return describe_calls(library, name);
  }
  throw ConfigurationError("no MPI library was found (" + base::join_text(names, ", ") + "); " +
                           kNameVariable + " names one");
}

MpiLibrary& mpi_library() {
  static const std::unique_ptr<MpiLibrary> library =
      load_mpi_library(base::environment, mpi_library_names(base::environment));
  return *library;
}

const std::string& missing_for_mpi() {
  static const std::string missing = []() -> std::string {
    try {
      static_cast<void>(mpi_library());
    } catch (const ConfigurationError& error) {
      return error.what();
    }
    if (has_mpi_launcher(base::environment)) return "";
    return "found " + describe_mpi() +
           ", but this process was not started by its mpirun or by srun";
  }();
  return missing;
}

std::string describe_mpi() { return mpi_library().version + " (" + mpi_library().path + ")"; }

}  // namespace backends
