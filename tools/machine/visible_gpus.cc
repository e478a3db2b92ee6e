// Counted by names of files: a launcher starts before, and without, the driver.
#include "tools/machine/visible_gpus.h"

#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>

#include "io/base/text_parts.h"

namespace tools {

int visible_gpus() {
  if (const char* list = std::getenv("CUDA_VISIBLE_DEVICES")) {
    int count = 0;
    for (const std::string& part : base::split_text(list, ',')) {
      const std::string_view device = base::trimmed(part);
      if (device == "-1") break;  // hides itself and those behind it
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

}  // namespace tools
