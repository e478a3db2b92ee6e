// Makes folders, and names what stands in their place.
#include "io/base/files/create_folder.h"

#include <filesystem>
#include <system_error>

#include "io/base/files/io_error.h"
#include "io/base/files/system_error_text.h"

namespace io {

void create_folder(const std::string& folder) {
  namespace fs = std::filesystem;
  std::error_code error, fault, no_link;
  fs::create_directories(folder, error);
  const fs::file_status status = fs::status(folder, fault);
  if (fs::is_directory(status)) return;
  const fs::path target = fs::read_symlink(folder, no_link);
  throw CannotCreateError("cannot create folder " + folder + ": " +
                          (fs::exists(status) ? "it is a file"
                           : no_link
                               ? base::system_error_text((error ? error : fault).value())
                               : "it is a link to " + target.string() + ", which is not there"));
}

}  // namespace io
