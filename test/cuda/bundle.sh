du -sh $1
