// Names of registers, by scope.
#include "tests/emulator/ptx/decode/registers.h"

#include <string>

#include "tests/emulator/ptx/decode/text_reader.h"

namespace ptx {

std::uint32_t Registers::add(unsigned bytes) {
  bytes_.push_back(bytes);
  return static_cast<std::uint32_t>(bytes_.size() - 1);
}

void Registers::declare_family(std::string_view name, unsigned bytes, std::uint32_t count) {
  scopes_.back().families[name] = {static_cast<std::uint32_t>(bytes_.size()), count};
  bytes_.resize(bytes_.size() + count, bytes);
}

std::uint32_t Registers::constant(unsigned bytes, std::uint64_t bits) {
  if (bytes < 8) bits &= (std::uint64_t{1} << (8 * bytes)) - 1;
  const auto [found, is_new] = constants_.try_emplace({bytes, bits}, 0);
  if (is_new) found->second = add(bytes);
  return found->second;
}

std::uint32_t Registers::special(std::string_view name) {
  static const std::map<std::string_view, std::pair<Special, unsigned>> names = {
      {"%tid.x", {Special::kTid, 0}},
      {"%tid.y", {Special::kTid, 1}},
      {"%tid.z", {Special::kTid, 2}},
      {"%ntid.x", {Special::kNtid, 0}},
      {"%ntid.y", {Special::kNtid, 1}},
      {"%ntid.z", {Special::kNtid, 2}},
      {"%ctaid.x", {Special::kCtaid, 0}},
      {"%ctaid.y", {Special::kCtaid, 1}},
      {"%ctaid.z", {Special::kCtaid, 2}},
      {"%nctaid.x", {Special::kNctaid, 0}},
      {"%nctaid.y", {Special::kNctaid, 1}},
      {"%nctaid.z", {Special::kNctaid, 2}},
      {"%laneid", {Special::kLane, 0}},
      {"%warpid", {Special::kWarp, 0}},
      {"%clusterid.x", {Special::kClusterid, 0}},
      {"%clusterid.y", {Special::kClusterid, 1}},
      {"%clusterid.z", {Special::kClusterid, 2}},
      {"%nclusterid.x", {Special::kNclusterid, 0}},
      {"%nclusterid.y", {Special::kNclusterid, 1}},
      {"%nclusterid.z", {Special::kNclusterid, 2}},
      {"%cluster_ctaid.x", {Special::kClusterCtaid, 0}},
      {"%cluster_ctaid.y", {Special::kClusterCtaid, 1}},
      {"%cluster_ctaid.z", {Special::kClusterCtaid, 2}},
      {"%cluster_nctaid.x", {Special::kClusterNctaid, 0}},
      {"%cluster_nctaid.y", {Special::kClusterNctaid, 1}},
      {"%cluster_nctaid.z", {Special::kClusterNctaid, 2}},
      {"%cluster_ctarank", {Special::kClusterCtarank, 0}},
      {"%cluster_nctarank", {Special::kClusterNctarank, 0}},
  };
  const auto known = names.find(name);
  if (known == names.end()) throw Fault("unknown register " + std::string(name));
  const auto [found, is_new] = specials_.try_emplace(known->second, 0);
  if (is_new) found->second = add(4);
  return found->second;
}

std::optional<std::uint32_t> Registers::find(std::string_view name) const {
  std::size_t digits = name.size();
  while (digits > 0 && name[digits - 1] >= '0' && name[digits - 1] <= '9') --digits;
  for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
    if (const auto found = scope->registers.find(name); found != scope->registers.end())
      return found->second;
    if (digits == name.size()) continue;
    const auto family = scope->families.find(name.substr(0, digits));
    if (family == scope->families.end()) continue;
    const std::uint64_t which = number_of(name.substr(digits), 10);
    if (which < family->second.count)
      return family->second.first + static_cast<std::uint32_t>(which);
  }
  return std::nullopt;
}

std::optional<std::uint32_t> Registers::find_parameter(std::string_view name) const {
  for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope)
    if (const auto found = scope->parameters.find(name); found != scope->parameters.end())
      return found->second;
  return std::nullopt;
}

}  // namespace ptx
