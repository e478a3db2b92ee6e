// The place from which a run continues (`--resume`).
#pragma once

#include <string>

namespace tools {

struct Resume {
  enum class From {
    kNothing,
    kOwnFolder,  // "auto": what the folder holds that it saves in, if anything
    kPath,       // another folder, or one checkpoint
  };
  From from = From::kNothing;
  std::string path = {};  // with kPath

  static Resume parse(const std::string& text);  // "none", "auto", or a path
  std::string text() const;
  bool is_wanted() const { return from != From::kNothing; }
  bool is_automatic() const { return from == From::kOwnFolder; }
};

}  // namespace tools
