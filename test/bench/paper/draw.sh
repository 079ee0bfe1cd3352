#!/bin/sh
# Draws every figure whose data is there, as SVG and PNG: draw.sh DIR
# A figure is a gnuplot script beside this one. What gnuplot has to say goes into DIR/FIGURE.log,
# which stays only where it could not draw.
dir=$1

# plot TERMINAL FONT_SIZE SUFFIX: one figure in one format.
plot() {
    terminal="set terminal $1 size $size font 'sans,$2' background 'white'"
    gnuplot -e "$terminal; set output '$dir/$name.$3'; dir='$dir'" "$script" 2>>"$dir/$name.log"
}
# made_smaller FILE: a quarter of what gnuplot writes is groups of nothing, and another eighth are
# styles that are SVG's defaults or those of the group, names of styles that no figure has, and
# filters for boxes. Coordinates keep a tenth of a pixel, and only points that are drawn are
# defined. A point may be made of another, which is defined before it.
made_smaller() {
    sed -e 's/ stroke-linecap="butt" stroke-linejoin="miter"//' -e '/<filter /,/<\/filter>/d' \
        -e 's/<tspan font-family="sans" >/<tspan>/' -e 's/ class="gridline" //' \
        -e 's/ font-family="sans" font-size="13" */ /' \
        -e 's/^<svg/& font-family="sans" font-size="13"/' \
        -e 's/ stroke-width="1"//;s/^\t*//' -e "s| *'/>|'/>|" \
        -e '/<tspan/!{s/\.00\([^0-9]\)/\1/g;s/\([0-9]\)\.\([0-9]\)[0-9]\([^0-9]\)/\1.\2\3/g}' \
        -e '/^<g /{$!N;/^<g [^>]*>\n<\/g>$/d;P;D}' "$1" >"$1.new" && mv "$1.new" "$1"
    for id in $(sed -n "s/.* id='\(gp[A-Za-z0-9]*\)'.*/\1/p" "$1" | tac); do
        grep -q "#$id'" "$1" || sed -i "/ id='$id'/d" "$1"
    done
}
for script in test/bench/paper/*.gp; do
    name=$(basename "$script" .gp)
    [ "$name" = common ] && continue
    case $name in
    fig5[bc]_*) size=1000,480 ;;
    scheduler) size=1000,800 ;;
    *) size=800,480 ;;
    esac
    rm -f "$dir/$name.log"
    if plot svg 13 svg && plot pngcairo 11 png; then
        made_smaller "$dir/$name.svg"
        rm -f "$dir/$name.log"
        echo "  $dir/$name.svg"
    else
        rm -f "$dir/$name.svg" "$dir/$name.png"
        echo "  $name: not drawn, see $dir/$name.log"
    fi
done
