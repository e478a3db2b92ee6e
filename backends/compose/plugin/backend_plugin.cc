// Loads backend plug-ins.
#include "backends/compose/plugin/backend_plugin.h"

#include <dlfcn.h>

#include <filesystem>
#include <map>
#include <mutex>
#include <system_error>

#include "backends/backend_error.h"

namespace backends {

namespace {

// Returns the version that a plug-in was compiled for; "another version" if it accepts none.
std::string version_of(BackendPluginEntry entry) {
  constexpr int kMaxVersion = 1000;
  for (int number = 1; number <= kMaxVersion; ++number) {
    std::string abi = "engine-backend-" + std::to_string(number);
    if (entry(abi.c_str()) != nullptr) return abi;
  }
  return "another version";
}

}  // namespace

std::vector<std::string> plugin_places(const std::string& name) {
  std::error_code failure;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", failure);
  if (failure) return {};
  const std::filesystem::path folder = program.parent_path();
  const std::string library = "libengine_" + name + ".so";
  return {folder / library, folder.parent_path() / "lib" / "engine" / library};
}

std::string find_plugin(const std::string& name) {
  std::error_code failure;
  for (const std::string& place : plugin_places(name))
    if (std::filesystem::exists(place, failure)) return place;
  return "";
}

const Backend& load_backend_plugin(const std::string& path) {
  static std::mutex mutex;
  static std::map<std::string, const Backend*> loaded;
  const std::lock_guard lock(mutex);
  const auto known = loaded.find(path);
  if (known != loaded.end()) return *known->second;
  // Never closed: communicators, exceptions and threads of the library may outlive any owner here.
  // Global, because libraries such as Open MPI load further parts that need its symbols.
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr)
    throw ConfigurationError("backend plug-in " + path + " cannot be loaded: " + dlerror());
  const auto entry = reinterpret_cast<BackendPluginEntry>(dlsym(library, "engine_backend_plugin"));
  if (entry == nullptr)
    throw ConfigurationError(
        "backend plug-in " + path +
        " exports no engine_backend_plugin: it is not a backend of this program");
  const Backend* backend = entry(kBackendPluginAbi);
  if (backend == nullptr)
    throw ConfigurationError("backend plug-in " + path + " was compiled for " + version_of(entry) +
                             ", expected " + kBackendPluginAbi + ": recompile it");
  loaded.emplace(path, backend);
  return *backend;
}

}  // namespace backends
