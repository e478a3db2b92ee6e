// Asks the file system.
#include "tools/report/output_paths.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "io/base/io_error.h"

namespace tools {

namespace fs = std::filesystem;

void check_output_path(const std::string& what, const std::string& path,
                       const std::string& save_dir) {
  if (path.empty() || path == "-") return;
  const auto fail = [&](const std::string& cause) {
    throw io::CannotCreateError(what + " " + path + ": cannot create: " + cause);
  };
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) fail("it is a folder; expected the name of a file");
  if (fs::exists(path, ignored)) {
    if (access(path.c_str(), W_OK) != 0) fail(std::strerror(errno));
    return;
  }
  fs::path folder = fs::path(path).parent_path();
  if (folder.empty()) folder = ".";
  const auto normal = [](const fs::path& p) { return (p / "").lexically_normal(); };
  if (!save_dir.empty() && normal(folder) == normal(save_dir)) return;
  if (!fs::exists(folder, ignored)) fail("there is no folder " + folder.string());
  if (!fs::is_directory(folder, ignored)) fail(folder.string() + " is no folder");
  if (access(folder.c_str(), W_OK | X_OK) != 0) fail(std::strerror(errno));
}

}  // namespace tools
