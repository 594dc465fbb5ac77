#include "device_plugin/compiler/tilers/planes.h"

namespace trnsim::compiler {

std::vector<Planes> planes_of(const std::vector<View>& views, size_t axes) {
  std::vector<View> v = views;
  const size_t leading = v[0].sizes.size() - axes;
  // Merge leading axes by hand: the spatial sizes differ between the views.
  std::vector<int64_t> sizes(v[0].sizes.begin(), v[0].sizes.begin() + static_cast<long>(leading));
  std::vector<std::vector<int64_t>> strides;
  for (const View& x : v)
    strides.emplace_back(x.strides.begin(), x.strides.begin() + static_cast<long>(leading));
  for (size_t i = leading; i-- > 1;) {
    bool ok = true;
    for (const auto& s : strides)
      ok = ok && (sizes[i - 1] == 1 || sizes[i] == 1 || s[i - 1] == s[i] * sizes[i]);
    if (!ok) continue;
    for (auto& s : strides) {
      if (sizes[i] == 1) s[i] = s[i - 1];
      s.erase(s.begin() + static_cast<long>(i) - 1);
    }
    sizes[i] *= sizes[i - 1];
    sizes.erase(sizes.begin() + static_cast<long>(i) - 1);
  }
  // The longest remaining axis is the channel axis.
  size_t channel = 0;
  for (size_t i = 1; i < sizes.size(); ++i)
    if (sizes[i] > sizes[channel]) channel = i;
  std::vector<Planes> out;
  int64_t loops = 1;
  for (size_t i = 0; i < sizes.size(); ++i)
    if (i != channel) loops *= sizes[i];
  for (int64_t loop = 0; loop < loops; ++loop) {
    Planes p;
    for (size_t k = 0; k < v.size(); ++k) {
      ImageView image;
      int64_t delta = 0, rest = loop;
      for (size_t i = sizes.size(); i-- > 0;) {
        if (i == channel) continue;
        delta += rest % sizes[i] * strides[k][i];
        rest /= sizes[i];
      }
      image.base = window_of(v[k], delta, {}, {});
      if (!sizes.empty()) {
        image.channels = sizes[channel];
        image.channel_stride = strides[k][channel];
      }
      for (size_t a = 0; a < axes; ++a) {
        image.size[3 - axes + a] = v[k].sizes[leading + a];
        image.stride[3 - axes + a] = v[k].strides[leading + a];
      }
      p.views.push_back(image);
    }
    out.push_back(p);
  }
  return out;
}

}  // namespace trnsim::compiler
