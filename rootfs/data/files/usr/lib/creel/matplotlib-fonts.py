"""Builds matplotlib's font list into the image, and makes Chinese show whatever fonts a program asks for.

Run by caches.sh at build time, again in each image that adds fonts. Three things:

1. The list of fonts goes to mpl-data/fontlist-vVERSION.json. matplotlib looks for it in its cache directory only, which is
   on an empty tmpfs in each sandbox: a patch makes it look here next. (Making the list takes 0.2 to 1 s at each first import.)
2. matplotlib takes one font from `font.sans-serif`, the first that exists, and shows boxes for what that one lacks; and
   seaborn.set_theme() and style.use() set that list anew. A patch adds the Chinese font behind whatever was asked for.
3. Fonts that programs written on Windows and macOS ask for by name are listed under that name too, and in the weights that
   the Chinese font lacks: else matplotlib warns on stderr about each kind of text.

The patches are applied to known text: when a new release of matplotlib differs, the build fails here and says so.
"""

import json
import pathlib
import py_compile
import sys

import matplotlib as mpl

# Taken in this order, as far as they are installed.
FALLBACK = ["Noto Sans CJK SC", "WenQuanYi Micro Hei"]
SANS = [
    "SimHei", "Microsoft YaHei", "Microsoft YaHei UI", "DengXian", "PingFang SC", "PingFang HK", "Heiti SC", "Heiti TC",
    "STHeiti", "STXihei", "Hiragino Sans GB", "Arial Unicode MS", "Source Han Sans SC", "Source Han Sans CN",
    "WenQuanYi Zen Hei", "WenQuanYi Micro Hei", "Noto Sans CJK SC", "Noto Sans CJK JP", "Noto Sans SC",
]
SERIF = [
    "SimSun", "NSimSun", "FangSong", "KaiTi", "STSong", "STFangsong", "STKaiti", "Songti SC", "Kaiti SC",
    "FangSong_GB2312", "KaiTi_GB2312", "Source Han Serif SC", "Noto Serif CJK SC",
]

LOAD = '''        mpl.get_cachedir(), f"fontlist-v{FontManager.__version__}.json")
    if try_read_cache:
'''
LOAD_PATCHED = '''        mpl.get_cachedir(), f"fontlist-v{FontManager.__version__}.json")
    # creel: the list that was made with the image
    if try_read_cache and not fm_path.exists():
        with_image = Path(mpl.get_data_path(), fm_path.name)
        if with_image.exists():
            fm_path = with_image
    if try_read_cache:
'''
FIND = '''            else:
                raise ValueError("Failed to find any font, and fallback "
                                 "to the default font was disabled")

        return fpaths
'''
FIND_PATCHED = '''            else:
                raise ValueError("Failed to find any font, and fallback "
                                 "to the default font was disabled")

        # creel: glyphs that none of these has are taken from the image's Chinese font
        if fontext == 'ttf' and directory is None:
            for family in self.__dict__.get('fallback_families', ()):
                cprop = prop.copy()
                cprop.set_family(family)
                try:
                    fpath = self.findfont(cprop, fontext, fallback_to_default=False,
                                          rebuild_if_missing=False)
                except ValueError:
                    continue
                if fpath not in fpaths:
                    fpaths.append(fpath)

        return fpaths
'''


def patch():
    path = pathlib.Path(mpl.__file__).with_name("font_manager.py")
    text = path.read_text(encoding="utf-8")
    if "# creel:" in text:
        return
    for old, new in ((LOAD, LOAD_PATCHED), (FIND, FIND_PATCHED)):
        if text.count(old) != 1:
            sys.exit(f"matplotlib {mpl.__version__}: font_manager.py differs from what this patch knows:\n{old}")
        text = text.replace(old, new)
    path.write_text(text, encoding="utf-8")
    py_compile.compile(str(path), doraise=True, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)


def weight_of(entry):
    from matplotlib.font_manager import weight_dict

    return weight_dict.get(entry.weight, entry.weight)


def font_list():
    from matplotlib import font_manager

    fonts = font_manager.FontManager()
    data = pathlib.Path(mpl.get_data_path())

    def order(entry):
        # Its own fonts first; else by path. The order in which directories are read is not the same everywhere.
        path = pathlib.Path(entry.fname)
        own = not path.is_absolute() or path.is_relative_to(data)
        return (not own, entry.fname, getattr(entry, "index", 0))

    fonts.ttflist.sort(key=order)
    fonts.afmlist.sort(key=order)
    names = {f.name for f in fonts.ttflist}
    fallback = [family for family in FALLBACK if family in names][:1]
    if not fallback:
        sys.exit(f"none of these fonts is installed: {FALLBACK}")
    serif = "Noto Serif CJK SC" if "Noto Serif CJK SC" in names else fallback[0]
    add = [(family, fallback[0], range(100, 1000, 100)) for family in fallback]
    add += [(family, fallback[0], (400, 500, 600, 700)) for family in SANS if family not in names]
    add += [(family, serif, (400, 500, 600, 700)) for family in SERIF if family not in names]
    for family, source, weights in add:
        faces = [f for f in fonts.ttflist if f.name == source and f.style == "normal"]
        have = {weight_of(f) for f in faces} if family == source else set()
        for weight in weights:
            if weight not in have:
                face = min(faces, key=lambda f: abs(weight_of(f) - weight))
                entry = {**vars(face), "name": family, "weight": weight}
                fonts.ttflist.append(font_manager.FontEntry(**entry))
    fonts.fallback_families = fallback
    target = data / f"fontlist-v{font_manager.FontManager.__version__}.json"
    font_manager.json_dump(fonts, target)
    return target, len(fonts.ttflist), fallback[0]


patch()
target, count, family = font_list()
json.loads(target.read_text(encoding="utf-8"))
print(f"{target}: {count} fonts, Chinese from {family}")
