// The texts of --resume.
#include "tools/options/table/resume.h"

namespace tools {

Resume Resume::parse(const std::string& text) {
  if (text == "none") return {};
  if (text == "auto") return {From::kOwnFolder};
  return {From::kPath, text};
}

std::string Resume::text() const {
  switch (from) {
    case From::kNothing:
      return "none";
    case From::kOwnFolder:
      return "auto";
    case From::kPath:
      break;
  }
  return path;
}

}  // namespace tools
